package goredis

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
)

// instance is a server that a test started.
type instance struct {
	addr string
	rdb  *redis.Client
}

// lacks skips a test without a server or the module; with CI set it fails.
func lacks(t *testing.T) {
	t.Helper()
	const text = "no server or no module: see RL_SERVER and RL_MODULE"
	if os.Getenv("CI") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// module returns the arguments that load the module.
func module(t *testing.T) []string {
	t.Helper()
	path := os.Getenv("RL_MODULE")
	if path == "" {
		path = "../../../target/release/libredis_throttle.so"
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		lacks(t)
	}
	return []string{"--loadmodule", path}
}

// freePort returns a port that is free now.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// start starts a server with these arguments, and ends it with the test.
func start(t *testing.T, args ...string) *instance {
	t.Helper()
	return startFrom(t, nil, args...)
}

// startFrom starts a server with a configuration, which comes before the other arguments.
func startFrom(t *testing.T, config []string, args ...string) *instance {
	t.Helper()
	binary := os.Getenv("RL_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	if _, err := exec.LookPath(binary); err != nil {
		lacks(t)
	}
	port := freePort(t)
	dir := t.TempDir()
	all := append(config, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "",
		"--dir", dir, "--logfile", filepath.Join(dir, "log"))
	command := exec.Command(binary, append(all, args...)...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	one := &instance{addr: addr, rdb: redis.NewClient(&redis.Options{Addr: addr, Protocol: 2})}
	t.Cleanup(func() {
		_ = one.rdb.Close()
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	await(t, "the server answers", func() bool {
		err := one.rdb.Ping(context.Background()).Err()
		return err == nil || strings.HasPrefix(err.Error(), "NOAUTH")
	})
	return one
}

// startSentinel starts a sentinel of one primary, named main.
func startSentinel(t *testing.T, config, primary string) *instance {
	t.Helper()
	host, port, _ := net.SplitHostPort(primary)
	text := fmt.Sprintf("sentinel monitor main %s %s 1\n"+
		"sentinel down-after-milliseconds main 500\n"+
		"sentinel failover-timeout main 5000\n", host, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startFrom(t, []string{config, "--sentinel"})
}

// await polls until a condition is true.
func await(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in 20 s: " + what)
		}
	}
}

// limiterOf returns a limiter over a client, closed with the test.
func limiterOf(
	t *testing.T, client redis.UniversalClient, opts ...throttle.Option,
) *throttle.Limiter {
	t.Helper()
	return limiterFrom(t, Adapt(client), opts...)
}

func limiterFrom(
	t *testing.T, dialer throttle.Dialer, opts ...throttle.Option,
) *throttle.Limiter {
	t.Helper()
	limiter, err := throttle.New(dialer, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close(context.Background()) })
	return limiter
}

// patient is a time-out that a busy machine keeps.
var patient = throttle.WithTimeout(5 * time.Second)

func gcra(t *testing.T, burst int64) *throttle.Rule {
	t.Helper()
	return throttle.Must(throttle.GCRA("api", burst, 1, time.Hour))
}

// check decides a call, which must not be an error.
func check(t *testing.T, limiter *throttle.Limiter, item throttle.Item) throttle.Decision {
	t.Helper()
	d, err := limiter.Check(context.Background(), item)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
