package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// redisRate is a script in Lua, GCRA.
func redisRate(j *job, rdb *redis.Client) (func() (bool, error), func(), error) {
	limiter := redis_rate.NewLimiter(rdb)
	limit := redis_rate.Limit{Rate: int(j.Limit), Burst: int(j.Limit), Period: j.period()}
	ctx := context.Background()
	call := func() (bool, error) {
		result, err := limiter.Allow(ctx, j.Key, limit)
		return err == nil && result.Allowed > 0, err
	}
	return call, func() {}, nil
}

// httprateRedis reads two windows, then increments one in a transaction, under a lock of the
// process.
func httprateRedis(j *job, rdb *redis.Client) (func() (bool, error), func(), error) {
	var failed atomic.Pointer[error]
	counter := httprateredis.WithRedisLimitCounter(&httprateredis.Config{
		Client: rdb, FallbackDisabled: true, OnError: func(err error) { failed.Store(&err) },
	})
	limiter := httprate.NewRateLimiter(int(j.Limit), j.period(), counter)
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	call := func() (bool, error) {
		isDenied := limiter.OnLimit(httptest.NewRecorder(), request, j.Key)
		if err := failed.Load(); err != nil {
			return false, *err
		}
		return !isDenied, nil
	}
	return call, func() {}, nil
}
