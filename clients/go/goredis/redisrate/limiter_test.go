package redisrate_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis/redisrate"
	"redis-throttle.invalid/go/internal/live"
)

var ctx = context.Background()

// patient is a time-out that a busy machine keeps.
var patient = throttle.WithTimeout(time.Minute)

func limiterOf(
	t *testing.T, rdb redis.UniversalClient, options ...throttle.Option,
) *redisrate.Limiter {
	t.Helper()
	limiter := redisrate.NewLimiter(rdb, append([]throttle.Option{patient}, options...)...)
	t.Cleanup(func() { _ = limiter.Close(ctx) })
	return limiter
}

func TestTakes_all_or_none_and_as_many_as_are_left(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: live.Start(t)})
	defer rdb.Close()
	limiter := limiterOf(t, rdb)
	limit := redisrate.Limit{Rate: 1, Burst: 10, Period: time.Hour}
	const allowed = -1
	n, most := limiter.AllowN, limiter.AllowAtMost
	// The last two columns are hours, rounded up.
	for at, call := range []struct {
		method func(context.Context, string, redisrate.Limit, int) (*redisrate.Result, error)
		events int

		allowed, remaining, retry, reset int
	}{
		{n, 1, 1, 9, allowed, 1},
		{n, 2, 2, 7, allowed, 3},
		{n, 8, 0, 7, 1, 3},
		{n, 12, 0, 7, 5, 3},
		{n, 0, 0, 7, allowed, 3},
		{most, 0, 0, 7, allowed, 3},
		{most, 9, 7, 0, allowed, 10},
		{most, 9, 0, 0, 1, 10},
		{most, 0, 0, 0, 1, 10},
		{n, 0, 0, 0, allowed, 10},
	} {
		got, err := call.method(ctx, "a", limit, call.events)
		if err != nil {
			t.Fatalf("call %d: %v", at, err)
		}
		if got.Limit != limit || got.Allowed != call.allowed || got.Remaining != call.remaining ||
			!isAbout(got.RetryAfter, call.retry) || !isAbout(got.ResetAfter, call.reset) {
			t.Errorf("call %d: %+v", at, *got)
		}
	}
	if err := limiter.Reset(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := limiter.Allow(ctx, "a", limit); err != nil || got.Remaining != 9 {
		t.Errorf("after the reset: %+v, %v", got, err)
	}
}

func TestDenies_all_under_a_limit_of_0_without_a_call(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	limiter := limiterOf(t, rdb)
	n, most := limiter.AllowN, limiter.AllowAtMost
	// redis_rate returns the same for a burst of 0, and an error for a rate of 0.
	noBurst := redisrate.Limit{Rate: 10, Period: time.Second}
	noRate := redisrate.Limit{Burst: 5, Period: time.Second}
	for at, call := range []struct {
		method func(context.Context, string, redisrate.Limit, int) (*redisrate.Result, error)
		limit  redisrate.Limit
		events int
		retry  time.Duration
	}{
		{n, noBurst, 1, 100 * time.Millisecond},
		{n, noBurst, 2, 200 * time.Millisecond},
		{n, noBurst, 0, -1},
		{most, noBurst, 2, 100 * time.Millisecond},
		{most, noBurst, 0, 100 * time.Millisecond},
		{n, noRate, 1, throttle.Never},
		{most, noRate, 2, throttle.Never},
		{n, redisrate.PerMinute(0), 1, throttle.Never},
	} {
		got, err := call.method(ctx, "a", call.limit, call.events)
		want := redisrate.Result{Limit: call.limit, RetryAfter: call.retry}
		if err != nil || *got != want {
			t.Errorf("call %d: %+v, %v", at, got, err)
		}
	}
}

// isAbout returns true for the time of an allowed call, or up to a minute less than some hours.
func isAbout(got time.Duration, hours int) bool {
	if hours < 0 {
		return got == -1
	}
	most := time.Duration(hours) * time.Hour
	return got <= most && got > most-time.Minute
}

func TestReturns_an_error_and_takes_nothing_without_a_reply(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rdb := redis.NewClient(&redis.Options{Addr: silent.Addr().String()})
	defer rdb.Close()
	limiter := limiterOf(t, rdb, throttle.WithTimeout(20*time.Millisecond),
		throttle.WithOnError(throttle.Local))
	var unavailable *throttle.Unavailable
	for range 10 {
		got, err := limiter.Allow(ctx, "a", redisrate.PerHour(1))
		if got != nil || !errors.As(err, &unavailable) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if err := limiter.Reset(ctx, "a"); !errors.As(err, &unavailable) {
		t.Error(err)
	}
}

func TestDenies_a_key_without_a_reply_if_the_server_denied_it_before(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: live.Start(t)})
	defer rdb.Close()
	limiter := limiterOf(t, rdb, throttle.WithTimeout(50*time.Millisecond))
	live.Await(t, "a denial by the server", func() bool {
		got, err := limiter.Allow(ctx, "a", redisrate.PerHour(1))
		return err == nil && got.Allowed == 0
	})
	if err := rdb.Do(ctx, "CLIENT", "PAUSE", "60000", "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	got, err := limiter.Allow(ctx, "a", redisrate.PerHour(1))
	if err != nil || got.Allowed != 0 || got.RetryAfter < 59*time.Minute {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := limiter.Allow(ctx, "b", redisrate.PerHour(1)); err == nil {
		t.Errorf("another key: %+v", got)
	}
}

func TestReturns_an_error_for_each_invalid_argument(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	second := redisrate.PerSecond(1)
	limiter := limiterOf(t, rdb)
	closed := limiterOf(t, rdb)
	if err := closed.Close(ctx); err != nil {
		t.Fatal(err)
	}
	var none context.Context
	for what, call := range map[string]func() (*redisrate.Result, error){
		"ring": func() (*redisrate.Result, error) {
			return redisrate.NewLimiter(ring).Allow(ctx, "a", second)
		},
		"no client": func() (*redisrate.Result, error) {
			return redisrate.NewLimiter(nil).Allow(ctx, "a", second)
		},
		"option": func() (*redisrate.Result, error) {
			return redisrate.NewLimiter(rdb, throttle.WithTimeout(0)).Allow(ctx, "a", second)
		},
		"zero limiter": func() (*redisrate.Result, error) {
			return redisrate.Limiter{}.Allow(ctx, "a", second)
		},
		"zero limit": func() (*redisrate.Result, error) {
			return limiter.Allow(ctx, "a", redisrate.Limit{})
		},
		"nanosecond": func() (*redisrate.Result, error) {
			return limiter.Allow(ctx, "a", redisrate.Limit{Rate: 1, Burst: 1, Period: 1})
		},
		"negative burst": func() (*redisrate.Result, error) {
			return limiter.Allow(ctx, "a", redisrate.Limit{Burst: -1, Period: time.Second})
		},
		"negative of none": func() (*redisrate.Result, error) {
			return limiter.AllowN(ctx, "a", redisrate.PerSecond(0), -1)
		},
		"no key of none": func() (*redisrate.Result, error) {
			return limiter.Allow(ctx, "", redisrate.PerSecond(0))
		},
		"negative": func() (*redisrate.Result, error) {
			return limiter.AllowN(ctx, "a", second, -1)
		},
		"fewer than none": func() (*redisrate.Result, error) {
			return limiter.AllowAtMost(ctx, "a", second, -1)
		},
		"key":     func() (*redisrate.Result, error) { return limiter.Allow(ctx, "", second) },
		"context": func() (*redisrate.Result, error) { return limiter.Allow(none, "a", second) },
		"closed":  func() (*redisrate.Result, error) { return closed.Allow(ctx, "a", second) },
	} {
		got, err := call()
		var invalid *throttle.InvalidArgument
		if got != nil || !errors.As(err, &invalid) && !errors.Is(err, throttle.ErrClosed) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if err := (*redisrate.Limiter)(nil).Reset(ctx, "a"); err == nil {
		t.Error("a nil limiter reset a key")
	}
}

func TestPrints_a_limit(t *testing.T) {
	for text, limit := range map[string]redisrate.Limit{
		"10 req/s (burst 10)": redisrate.PerSecond(10),
		"2 req/m (burst 2)":   redisrate.PerMinute(2),
		"3 req/h (burst 3)":   redisrate.PerHour(3),
		"4 req/1m30s (burst 5)": {
			Rate: 4, Burst: 5, Period: 90 * time.Second,
		},
	} {
		if limit.String() != text || limit.IsZero() {
			t.Error(limit, limit.IsZero())
		}
	}
	if !(redisrate.Limit{}).IsZero() {
		t.Error("the zero limit is not zero")
	}
}
