package goredis

import (
	"context"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// impatient decides a call that gets no reply before its caller's deadline.
func impatient(t *testing.T, limiter *throttle.Limiter, item throttle.Item) throttle.Decision {
	t.Helper()
	for patience := 10 * time.Millisecond; ; patience *= 2 {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		d, err := limiter.Check(ctx, item)
		stop()
		// A busy machine may begin the call after its deadline.
		if err == nil {
			return d
		}
	}
}

func TestForget_resets_what_this_process_counted(t *testing.T) {
	server := start(t, live.Module(t)...)
	pause := func() { server.rdb.Do(t.Context(), "CLIENT", "PAUSE", "60000", "WRITE") }
	for name, onError := range map[string]throttle.OnError{
		"by its share": throttle.Local, "by the whole limit": throttle.Allow,
	} {
		t.Run(name, func(t *testing.T) {
			limiter := limiterOf(t, server.rdb, patient, throttle.WithOnError(onError))
			item := gcra(t, 2).Of(name)
			check(t, limiter, gcra(t, 2).Of("another"))
			pause()
			for _, allowed := range []bool{true, true, false} {
				if d := impatient(t, limiter, item); d.Allowed != allowed || !d.Degraded {
					t.Fatal(d)
				}
			}
			server.rdb.Do(t.Context(), "CLIENT", "UNPAUSE")
			if _, err := limiter.Forget(t.Context(), item); err != nil {
				t.Fatal(err)
			}
			pause()
			if d := impatient(t, limiter, item); !d.Allowed || !d.Degraded {
				t.Error(d)
			}
			server.rdb.Do(t.Context(), "CLIENT", "UNPAUSE")
		})
	}
}
