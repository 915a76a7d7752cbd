package web

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

func TestDenies_the_eleventh_request(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7777"})
	limiter, err := throttle.New(goredis.Adapt(rdb))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(t.Context())
	handler, err := New(limiter)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	var got []int
	for range 11 {
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		got = append(got, response.StatusCode)
	}
	if want := append(slices.Repeat([]int{200}, 10), 429); !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
