// Package live starts servers for the tests of the client's packages. It is of no use elsewhere.
package live

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// Start starts a server with the module, ends it with the test, and returns its address. RL_SERVER
// is the server, otherwise redis-server; RL_MODULE is the module, otherwise that of
// target/release above the folder. The words are arguments of the module.
func Start(t *testing.T, words ...string) string {
	t.Helper()
	binary, module := os.Getenv("RL_SERVER"), os.Getenv("RL_MODULE")
	if binary == "" {
		binary = "redis-server"
	}
	if module == "" {
		module = above(t, "target/release/libredis_throttle.so")
	}
	_, noModule := os.Stat(module)
	if _, err := exec.LookPath(binary); err != nil || noModule != nil {
		Lacks(t, "no server or no module: see RL_SERVER and RL_MODULE")
	}
	addr := freeAddress(t)
	_, port, _ := net.SplitHostPort(addr)
	arguments := []string{"--port", port, "--bind", "127.0.0.1", "--save", "",
		"--dir", t.TempDir(), "--loadmodule", module}
	command := exec.Command(binary, append(arguments, words...)...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	Await(t, "the server answers", func() bool { return answers(addr) })
	return addr
}

// Await polls until a condition is true.
func Await(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in 20 s: " + what)
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

// answers returns true if a server answers a PING.
func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	pong := make([]byte, len("+PONG\r\n"))
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, pong)
	return err == nil && string(pong) == "+PONG\r\n"
}
