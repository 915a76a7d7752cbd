package goredis

import (
	"testing"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// redis-throttle-lab serve makes decisions without a Redis.
func TestIs_denied_by_the_lab(t *testing.T) {
	addr := live.Lab(t)
	for name, opts := range map[string]*redis.Options{
		"resp2": {Addr: addr, Protocol: 2, Password: "secret", ClientName: "test"},
		"resp3": {Addr: addr, Protocol: 3, Username: "user", Password: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(opts)
			t.Cleanup(func() { _ = rdb.Close() })
			limiter := limiterOf(t, rdb, patient)
			for _, allowed := range []bool{true, false} {
				d := check(t, limiter, gcra(t, 1).Of(name))
				if d.Allowed != allowed || d.Source != throttle.SourceServer {
					t.Errorf("decided %+v", d)
				}
			}
		})
	}
}
