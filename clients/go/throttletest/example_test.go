package throttletest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/throttletest"
)

func Example() {
	ctx := context.Background()
	server := throttletest.NewServer()
	limiter, err := throttle.New(server)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close(ctx)
	mails := throttle.Must(throttle.Fixed("mails", 1, time.Hour))
	check := func() {
		d, err := limiter.Check(ctx, mails.Of("bob"))
		fmt.Println(d.Allowed, d.RetryAfter, d.Source, err)
	}
	check()
	check()
	server.Advance(time.Hour)
	check()
	server.Fail(nil)
	check()
	server.Recover()
	check()
	// Output:
	// true 0s server <nil>
	// false 1h0m0s server <nil>
	// true 0s server <nil>
	// true 0s error <nil>
	// false 1h0m0s server <nil>
}
