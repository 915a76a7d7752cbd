package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

// A check takes one unit. The limiter has its own connections, with the client's configuration.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limiter, err := throttle.New(goredis.Adapt(rdb), throttle.WithTimeout(100*time.Millisecond))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer func() { _ = limiter.Close(ctx) }()
	api := throttle.Must(throttle.GCRA("api", 10, 10, time.Minute))
	d, err := limiter.Check(ctx, api.Of("user:42"))
	fmt.Println(d, err)
}

// An admission takes requests, tokens, a reservation of a budget and a permit at once, and settles
// what the work took.
func Example_admission() {
	limiter, err := throttle.New(goredis.Adapt(redis.NewClient(&redis.Options{})))
	if err != nil {
		panic(err)
	}
	requests := throttle.Must(throttle.GCRA("rpm", 60, 60, time.Minute))
	tokens := throttle.Must(throttle.GCRA("tpm", 90_000, 90_000, time.Minute))
	month := throttle.Must(throttle.Quota("month", 5_000_000, throttle.Month))
	runs := throttle.Must(throttle.Lease("runs", 3, 30*time.Second))

	query := func(ctx context.Context, tenant, prompt string) (string, error) {
		admitted, err := limiter.Admit(ctx, []throttle.Item{
			requests.Of(tenant), tokens.Of(tenant).Cost(1800),
			month.Of(tenant).Reserve(1800, 0), runs.Of(tenant),
		})
		var denied *throttle.Denied
		if errors.As(err, &denied) {
			return "", fmt.Errorf("try again in %v", denied.Decision.RetryAfter)
		}
		if err != nil {
			return "", err
		}
		defer admitted.Finish(ctx)
		text, used := model(prompt)
		return text, errors.Join(admitted.Settle(tokens, used), admitted.Settle(month, used))
	}
	fmt.Println(query(context.Background(), "acme", "How are you?"))
}

// model stands for the call of a model. It returns the text and its tokens.
func model(prompt string) (string, int64) { return "Well. " + prompt, 1500 }
