package rules

import (
	"testing"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

func TestDecides_without_a_server(t *testing.T) {
	// Port 1 refuses connections.
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	limiter, err := throttle.New(goredis.Adapt(rdb))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(t.Context())
	d, err := limiter.Check(t.Context(), login.Of("alice"))
	if err != nil || d.Allowed || d.Reason != throttle.ReasonConnection || d.Err() == nil {
		t.Error(d, err)
	}
	d, err = limiter.Check(t.Context(), search.Of("alice"))
	if err != nil || !d.Allowed || d.Limit != 10 || d.Source != throttle.SourceLocal {
		t.Error(d, err)
	}
}
