package goredis

import (
	"context"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

func TestAllocates_little_per_call(t *testing.T) {
	server := start(t, live.Module(t)...)
	limiter := limiterOf(t, server.rdb, patient)
	ctx := context.Background()
	item := throttle.Must(throttle.Fixed("api", 1_000_000, time.Hour)).Of("user:42")
	allocations := testing.AllocsPerRun(1000, func() {
		if d, err := limiter.Check(ctx, item); err != nil || d.Degraded {
			t.Error(d, err)
		}
	})
	if allocations > 16 {
		t.Errorf("%v allocations", allocations)
	}
}
