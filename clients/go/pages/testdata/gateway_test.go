package gateway

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

func TestCharges_what_the_model_used(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7777"})
	limiter, err := throttle.New(goredis.Adapt(rdb))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(t.Context())
	// The end of the context does not end the admission.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if answer, err := Ask(ctx, limiter, "acme"); err != nil || answer != "answer" {
		t.Fatal(answer, err)
	}
	// A peek returns the decision of the next check.
	left := map[*throttle.Rule]int64{month: 5_000_000 - 1240 - 1, runs: 3, rpm: 58}
	for rule, want := range left {
		d, err := limiter.Peek(t.Context(), rule.Of("acme"))
		if err != nil || d.Remaining != want {
			t.Error(rule, d, err)
		}
	}
}
