package limits

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
)

func TestLogs_an_event(t *testing.T) {
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	limiter, err := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:7777"}))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(t.Context())
	rule := throttle.Must(throttle.GCRA("api", 10, 10, time.Minute))
	if _, err := limiter.Check(t.Context(), rule.Of("user:42")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"msg=limit", "event.rule=api", "event.source=server"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s has no %s", log.String(), want)
		}
	}
	if strings.Contains(log.String(), "user:42") {
		t.Error("the subject is logged")
	}
}

func TestRefuses_a_ring(t *testing.T) {
	shards := map[string]string{"a": "127.0.0.1:7777"}
	_, err := New(redis.NewRing(&redis.RingOptions{Addrs: shards}))
	if err == nil {
		t.Error("a Ring is no client")
	}
}
