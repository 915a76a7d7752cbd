package redisrate_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	redis_rate "redis-throttle.invalid/go/goredis/redisrate"
)

// The import line is all that changes in a program on redis_rate.
func Example() {
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
	result, err := limiter.Allow(context.Background(), "user:42", redis_rate.PerMinute(10))
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Allowed, result.Remaining, result.RetryAfter)
}
