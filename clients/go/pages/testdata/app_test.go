package app

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	redis_rate "redis-throttle.invalid/go/goredis/redisrate"
)

func TestDenies_the_eleventh(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7777"})
	limiter := redis_rate.NewLimiter(rdb, throttle.WithTimeout(time.Minute))
	defer limiter.Close(t.Context())
	for i := range 11 {
		allowed, err := mayAct(t.Context(), limiter, "alice")
		if err != nil || allowed != (i < 10) {
			t.Fatal(i, allowed, err)
		}
	}
	if left, err := rdb.Exists(t.Context(), "rl:rate:alice").Result(); err != nil || left != 1 {
		t.Error(left, err)
	}
}
