package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/throttletest"
)

// The examples share a limiter, as the calls of an application do. The fake server computes rates
// and windows, on a clock that Advance moves. Script queues the other replies, as the module sends
// them.
var (
	ctx     = context.Background()
	server  = throttletest.NewServer()
	limiter = limiterOf(server)
)

func limiterOf(server *throttletest.Server) *throttle.Limiter {
	limiter, err := throttle.New(server, throttle.WithTimeout(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

func ExampleNew() {
	// An application passes goredis.Adapt(rdb) instead of the fake server.
	limiter, err := throttle.New(throttletest.NewServer(), throttle.WithTimeout(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close(ctx)
	api := throttle.Must(throttle.GCRA("api", 10, 10, time.Minute))
	d, err := limiter.Check(ctx, api.Of("user:42"))
	fmt.Println(d, err)
	// Output:
	// api: allowed, 9 left (server) <nil>
}

// An API allows a burst of 2 requests, then one every 6 s.
func ExampleGCRA() {
	api := throttle.Must(throttle.GCRA("api", 2, 10, time.Minute))
	for range 3 {
		d, err := limiter.Check(ctx, api.Of("user:42"))
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter, err)
	}
	// Output:
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 6s <nil>
}

// A tenant has 1000 tokens of a model, and gains 100 per second.
func ExampleTokenBucket() {
	tokens := throttle.Must(throttle.TokenBucket("tokens", 1000, 100, time.Second))
	prompt := tokens.Of("acme").Cost(800)
	for range 2 {
		d, err := limiter.Check(ctx, prompt)
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter, err)
	}
	// Output:
	// true 200 0s <nil>
	// false 200 6s <nil>
}

// Webhooks are sent at 10 per second: each one waits for its RetryAfter.
func ExampleLeakyBucket() {
	hooks := throttle.Must(throttle.LeakyBucket("hooks", 50, 10, time.Second))
	for range 3 {
		d, err := limiter.Check(ctx, hooks.Of("shop.example"))
		fmt.Println(d.Allowed, d.RetryAfter, err)
	}
	// Output:
	// true 0s <nil>
	// true 100ms <nil>
	// true 200ms <nil>
}

// A phone number gets one code per hour.
func ExampleFixed() {
	codes := throttle.Must(throttle.Fixed("codes", 1, time.Hour))
	for range 3 {
		d, err := limiter.Check(ctx, codes.Of("+49301234567"))
		fmt.Println(d.Allowed, d.RetryAfter, err)
		server.Advance(30 * time.Minute)
	}
	// Output:
	// true 0s <nil>
	// false 30m0s <nil>
	// true 0s <nil>
}

// Half a minute into the next window, half of the last one's calls still count.
func ExampleSliding() {
	search := throttle.Must(throttle.Sliding("search", 10, time.Minute))
	d, err := limiter.Check(ctx, search.Of("user:42").Cost(10))
	fmt.Println(d.Allowed, d.Remaining, err)
	server.Advance(90 * time.Second)
	d, err = limiter.Check(ctx, search.Of("user:42"))
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output:
	// true 0 <nil>
	// true 4 <nil>
}

// An account has at most 2 password resets in any 24 hours.
func ExampleSlidingLog() {
	resets := throttle.Must(throttle.SlidingLog("resets", 2, 24*time.Hour))
	for range 3 {
		d, err := limiter.Check(ctx, resets.Of("ada"))
		fmt.Println(d.Allowed, d.RetryAfter, err)
		server.Advance(time.Hour)
	}
	// Output:
	// true 0s <nil>
	// true 0s <nil>
	// false 22h0m0s <nil>
}

// A login has 3 free attempts. The delay after the third is 1 s, and doubles from then on.
func ExampleBackoff() {
	login := throttle.Must(throttle.Backoff("login", 3, time.Second, time.Minute, time.Hour))
	server.Script([]any{1, 3, 0, 0, 3_600_000}, []any{0, 3, 0, 1000, 3_600_000})
	for _, attempt := range []string{"third", "fourth"} {
		d, err := limiter.Check(ctx, login.Of("ada"))
		fmt.Println(attempt, d.Allowed, d.RetryAfter, err)
	}
	// Output:
	// third true 0s <nil>
	// fourth false 1s <nil>
}

// A plan has 100,000 tokens per calendar month, in the time zone of the customer.
func ExampleQuota() {
	month, err := throttle.Quota("month", 100_000, throttle.Month, throttle.Zone("Europe/Berlin"))
	if err != nil {
		log.Fatal(err)
	}
	server.Script([]any{1, 100_000, 98_200, 0, 86_400_000})
	d, err := limiter.Check(ctx, month.Of("acme").Cost(1800))
	fmt.Println(d.Remaining, "left, resets in", d.ResetAfter, err)
	// Output:
	// 98200 left, resets in 24h0m0s <nil>
}

// A tenant runs one report at a time.
func ExampleLease() {
	reports := throttle.Must(throttle.Lease("reports", 1, 30*time.Second))
	server.Script([]any{0, 1, 0, 30_000, 30_000})
	_, err := limiter.Lease(ctx, reports.Of("acme"))
	var denied *throttle.Denied
	if errors.As(err, &denied) {
		fmt.Println("busy: try again within", denied.Decision.RetryAfter)
	}
	// Output:
	// busy: try again within 30s
}

// An operator stored the limit with RL.POLICY SET api GCRA 100 100 60.
func ExamplePolicy() {
	api := throttle.Must(throttle.Policy("api"))
	server.Script([]any{1, 100, 99, 0, 600, 1, 0})
	d, err := limiter.Check(ctx, api.Of("acme"))
	fmt.Println(d.Allowed, d.Remaining, "of", d.Limit, err)
	// Output:
	// true 99 of 100 <nil>
}

// A denial is not an error. A handler responds with its status and headers.
func ExampleLimiter_Check() {
	uploads := throttle.Must(throttle.GCRA("uploads", 5, 5, time.Minute))
	d, err := limiter.Check(ctx, uploads.Of("203.0.113.7").Cost(5))
	fmt.Println(d.Allowed, err)
	d, err = limiter.Check(ctx, uploads.Of("203.0.113.7"))
	if err == nil && !d.Allowed {
		fmt.Println(d.Problem().Status, d.Headers(throttle.HeaderOptions{})["Retry-After"])
	}
	// Output:
	// true <nil>
	// 429 12
}

// A page shows how many exports are left. It takes none.
func ExampleLimiter_Peek() {
	exports := throttle.Must(throttle.Fixed("exports", 5, 24*time.Hour))
	for range 2 {
		d, err := limiter.Peek(ctx, exports.Of("acme").Cost(0))
		fmt.Println(d.Remaining, "of", d.Limit, err)
	}
	// Output:
	// 5 of 5 <nil>
	// 5 of 5 <nil>
}

// A login attempt takes a unit of the address and one of the account, or none.
func ExampleLimiter_CheckAll() {
	address := throttle.Must(throttle.GCRA("login/address", 20, 20, time.Minute))
	account := throttle.Must(throttle.Fixed("login/account", 1, time.Minute))
	for range 2 {
		d, err := limiter.CheckAll(ctx, []throttle.Item{
			address.Of("203.0.113.7"), account.Of("ada"),
		})
		fmt.Println(d, "address:", d.Rows[0].Remaining, err)
	}
	// Output:
	// login/account: allowed, 0 left (server) address: 19 <nil>
	// login/account: denied, again in 1m0s (server) address: 19 <nil>
}

// A photo that turns out to be a duplicate does not count.
func ExampleLimiter_Refund() {
	photos := throttle.Must(throttle.Fixed("photos", 100, time.Hour))
	d, err := limiter.Check(ctx, photos.Of("ada").Cost(3))
	fmt.Println(d.Remaining, err)
	d, err = limiter.Refund(ctx, photos.Of("ada"))
	fmt.Println(d.Remaining, err)
	// Output:
	// 97 <nil>
	// 98 <nil>
}

// A job holds one of 3 permits until its release. The permit renews itself while the job runs.
func ExampleLimiter_Lease() {
	jobs := throttle.Must(throttle.Lease("jobs", 3, 30*time.Second))
	server.Script([]any{1, 3, 2, 0, 30_000}, 1)
	held, err := limiter.Lease(ctx, jobs.Of("acme"))
	if err != nil {
		log.Fatal(err) // A Denied, if all permits are taken.
	}
	fmt.Println(held.Held(), held.Decision().Remaining)
	held.Release(ctx) // Usually deferred.
	fmt.Println(held.Held())
	// Output:
	// true 2
	// false
}

// An import reserves the rows that it may need. Another one finds too few.
func ExampleLimiter_Reserve() {
	rows := throttle.Must(throttle.Fixed("rows", 1000, 24*time.Hour))
	server.Script([]any{0, 1000, 300, 600_000, 600_000, 1, []any{0, 1000, 300, 600_000, 600_000}})
	_, err := limiter.Reserve(ctx, rows.Of("acme").Cost(400), 10*time.Minute)
	var denied *throttle.Denied
	if errors.As(err, &denied) {
		fmt.Println(denied.Decision.Remaining, "left, again in", denied.Decision.RetryAfter)
	}
	// Output:
	// 300 left, again in 10m0s
}

// An import reserved 700 rows and took 450. The commit frees the other 250.
func ExampleReservation_Commit() {
	rows := throttle.Must(throttle.Fixed("rows", 1000, 24*time.Hour))
	server.Script([]any{1, 1000, 300, 0, 600_000, 1, []any{1, 1000, 300, 0, 600_000}})
	reserved, err := limiter.Reserve(ctx, rows.Of("acme").Cost(700), 10*time.Minute)
	if err != nil {
		log.Fatal(err) // A Denied, if fewer rows are left.
	}
	defer reserved.Cancel(ctx) // Does nothing after the commit.
	fmt.Println(reserved.Held(), reserved.Decision().Remaining)
	server.Script([]any{1, 1000, 550, 0, 86_400_000})
	fmt.Println(reserved.Commit(ctx, 450), reserved.Held())
	// Output:
	// true 300
	// <nil> false
}

// A prompt takes a request and one of 3 permits, or nothing. Finish releases the permit.
func ExampleLimiter_Admit() {
	requests := throttle.Must(throttle.GCRA("requests", 60, 60, time.Minute))
	runs := throttle.Must(throttle.Lease("runs", 3, 30*time.Second))
	request, run := []any{1, 60, 59, 0, 1000}, []any{1, 3, 2, 0, 30_000}
	server.Script([]any{1, 3, 2, 0, 30_000, 2, request, run}, 1)
	admitted, err := limiter.Admit(ctx, []throttle.Item{requests.Of("acme"), runs.Of("acme")})
	if err != nil {
		log.Fatal(err) // A Denied, if one of them denies.
	}
	fmt.Println(admitted.Decision(), admitted.Held())
	admitted.Finish(ctx) // Usually deferred.
	fmt.Println(admitted.Held())
	// Output:
	// runs: allowed, 2 left (server) true
	// false
}

// A prompt was estimated at 1800 tokens and took 1500. Finish refunds 300.
func ExampleAdmission_Settle() {
	tokens := throttle.Must(throttle.Fixed("tokens/minute", 90_000, time.Minute))
	admitted, err := limiter.Admit(ctx, []throttle.Item{tokens.Of("acme").Cost(1800)})
	if err != nil {
		log.Fatal(err) // A Denied, if fewer tokens are left.
	}
	fmt.Println(admitted.Settle(tokens, 1500))
	admitted.Finish(ctx)
	d, err := limiter.Peek(ctx, tokens.Of("acme").Cost(0))
	fmt.Println(d.Remaining, err)
	// Output:
	// <nil>
	// 88500 <nil>
}
