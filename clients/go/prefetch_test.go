package throttle_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/throttletest"
)

func TestPrefetch_of_many_goroutines_loses_no_permit(t *testing.T) {
	const limit = 200_050
	ctx := context.Background()
	server := throttletest.NewServer()
	rule := throttle.Must(throttle.Fixed("hot", limit, time.Hour))
	limiter, err := throttle.New(server, throttle.WithPrefetch(100))
	if err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range limit / 64 {
				if d, err := limiter.Check(ctx, rule.Of("a")); err == nil && d.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if err := limiter.Close(ctx); err != nil {
		t.Fatal(err)
	}
	other, err := throttle.New(server)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	d, err := other.Peek(ctx, rule.Of("a").Cost(0))
	if used := limit - d.Remaining; err != nil || used != allowed.Load() {
		t.Errorf("%d calls were allowed, %d units are used: %v, %v", allowed.Load(), used, d, err)
	}
}
