package work

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

func TestReleases_its_permit(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7777"})
	limiter, err := throttle.New(goredis.Adapt(rdb))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(t.Context())
	for range 6 {
		if err := Do(t.Context(), limiter, "acme"); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if _, err := limiter.Lease(t.Context(), jobs.Of("acme")); err != nil {
			t.Fatal(err)
		}
	}
	var denied *throttle.Denied
	if err := Do(t.Context(), limiter, "acme"); !errors.As(err, &denied) {
		t.Error(err)
	}
}
