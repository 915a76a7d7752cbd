// Package live starts servers for the tests of the client's packages. It is of no use elsewhere.
package live

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Lacks skips a test without what it needs. With CI set it fails.
func Lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// Start starts a server with the module, ends it with the test, and returns its address. The words
// are arguments of the module.
func Start(t *testing.T, words ...string) string {
	t.Helper()
	return Run(t, append(Module(t), words...)...)
}

// Module returns the arguments that load the module: RL_MODULE, otherwise that of target/release
// above the folder.
func Module(t *testing.T) []string {
	t.Helper()
	path := os.Getenv("RL_MODULE")
	if path == "" {
		path = above(t, "target/release/libredis_throttle.so")
	}
	if _, err := os.Stat(path); err != nil {
		Lacks(t, "no module: see RL_MODULE")
	}
	return []string{"--loadmodule", path}
}

// Run starts a server with these arguments, ends it with the test, and returns its address.
// RL_SERVER is the server, otherwise redis-server. A configuration is the first argument.
func Run(t *testing.T, arguments ...string) string {
	t.Helper()
	binary := os.Getenv("RL_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	if _, err := exec.LookPath(binary); err != nil {
		Lacks(t, "no server: see RL_SERVER")
	}
	addr := freeAddress(t)
	_, port, _ := net.SplitHostPort(addr)
	own := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "--") {
		own, arguments = append(arguments[:1:1], own...), arguments[1:]
	}
	begin(t, addr, exec.Command(binary, append(own, arguments...)...))
	return addr
}

// begin starts a program, ends it with the test, and returns when it replies.
func begin(t *testing.T, addr string, command *exec.Cmd) {
	t.Helper()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	Await(t, "the server replies", func() bool { return replies(addr) })
}

// Lab starts redis-throttle-lab serve, ends it with the test, and returns its address: RL_LAB,
// otherwise that of target/release above the folder.
func Lab(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RL_LAB")
	if path == "" {
		path = above(t, "target/release/redis-throttle-lab")
	}
	if _, err := os.Stat(path); err != nil {
		Lacks(t, "no lab: see RL_LAB")
	}
	addr := freeAddress(t)
	begin(t, addr, exec.Command(path, "serve", "--listen", addr))
	return addr
}

// Delay forwards connections to a server until the test ends, holds each part of a reply for some
// time, and returns the address to dial.
func Delay(t *testing.T, target string, hold time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go forward(server, client, 0)
			go forward(client, server, hold)
		}
	}()
	return listener.Addr().String()
}

func forward(to, from net.Conn, hold time.Duration) {
	defer func() { _, _ = to.Close(), from.Close() }()
	part := make([]byte, 1<<12)
	for {
		n, err := from.Read(part)
		if err != nil {
			return
		}
		time.Sleep(hold)
		if _, err := to.Write(part[:n]); err != nil {
			return
		}
	}
}

// Await polls until a condition is true.
func Await(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in a minute: " + what)
		}
	}
}

// above returns the path of a file in the folder of the test or the nearest one above that has it.
func above(t *testing.T, file string) string {
	t.Helper()
	folder, err := os.Getwd()
	for err == nil && folder != filepath.Dir(folder) {
		path := filepath.Join(folder, file)
		if _, missing := os.Stat(path); missing == nil {
			return path
		}
		folder = filepath.Dir(folder)
	}
	return file
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// replies returns true if a server replies to a PING, also if it wants a login first.
func replies(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return false
	}
	reply := make([]byte, len("-NOAUTH"))
	_, err = io.ReadFull(conn, reply)
	return err == nil && (string(reply) == "+PONG\r\n" || string(reply) == "-NOAUTH")
}
