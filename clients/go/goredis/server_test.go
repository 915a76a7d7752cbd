package goredis

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// instance is a server that a test started.
type instance struct {
	addr string
	rdb  *redis.Client
}

// start starts a server with these arguments, and ends it with the test.
func start(t *testing.T, args ...string) *instance {
	t.Helper()
	addr := live.Run(t, args...)
	one := &instance{addr: addr, rdb: redis.NewClient(&redis.Options{Addr: addr, Protocol: 2})}
	t.Cleanup(func() { _ = one.rdb.Close() })
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
	return start(t, config, "--sentinel")
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
var patient = throttle.WithTimeout(time.Minute)

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
