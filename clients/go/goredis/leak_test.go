package goredis

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// left returns the stacks of goroutines that a limiter or its adapter started.
func left() []string {
	buffer := make([]byte, 1<<22)
	var all []string
	for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		isTest := strings.Contains(stack, "testing.tRunner")
		if strings.Contains(stack, "redis-throttle.invalid/go.(*") && !isTest {
			all = append(all, stack)
		}
	}
	return all
}

func TestLeaves_no_goroutine_after_Close(t *testing.T) {
	server := start(t, live.Module(t)...)
	p := startProxy(t, server.addr)
	rdb := p.client()
	defer rdb.Close()
	before := runtime.NumGoroutine()
	ctx := context.Background()
	jobs := throttle.Must(throttle.Lease("jobs", 1000, time.Second))
	hot := throttle.Must(throttle.Fixed("hot", 1000, time.Hour, throttle.WithPrefetch(10)))
	for range 10 {
		limiter, err := throttle.New(Adapt(rdb), throttle.WithTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				_, _ = limiter.Check(ctx, hot.Of("a"))
				if permit, err := limiter.Lease(ctx, jobs.Of("t")); err == nil {
					_, _ = permit.Renew(ctx)
				}
				permit, err := limiter.Lease(ctx, jobs.Of("t"))
				if err == nil {
					p.set(func(p *proxy) { p.loses = true })
					permit.Release(ctx)
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		if err := limiter.Close(ctx); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if stacks := left(); len(stacks) > 0 {
			t.Fatalf("after Close:\n%s", strings.Join(stacks, "\n\n"))
		}
	}
	p.closeAll()
	// Those of go-redis and of the proxy end soon after.
	live.Await(t, "the goroutines of the driver end", func() bool {
		return runtime.NumGoroutine() <= before
	})
}
