package grpcthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/grpcthrottle"
)

// The limits skip the stream of this test.
func TestDenied_lease_of_a_handler_gets_the_status_of_a_denied_call(t *testing.T) {
	limiter := liveLimiter(t)
	jobs := throttle.Must(throttle.Lease("jobs", 1, time.Hour))
	held, err := limiter.Lease(t.Context(), jobs.Of("acme"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release(context.Background())
	counted := make(chan int, 1)
	calls := hourly(9, throttle.WithCount(throttle.CountIf(func(status int) bool {
		counted <- status
		return true
	})))
	work := func(ctx context.Context) error {
		_, err := limiter.Lease(ctx, jobs.Of("acme"))
		return fmt.Errorf("work: %w", err)
	}
	own := status.Error(codes.Aborted, "later")
	skipsStream := func(_ context.Context, call grpcthrottle.Call) bool {
		return call.Request == nil
	}
	client := serve(t,
		limitsOf(t, limiter, []*throttle.Rule{calls}, grpcthrottle.Skip(skipsStream)), &service{
			check: func(ctx context.Context) error { return errors.Join(own, work(ctx)) },
			watch: func(stream updates) error { return work(stream.Context()) },
		})
	_, err = client.Check(from(t, "acme"), &request{})
	if status.Code(err) != codes.Aborted || <-counted != 409 {
		t.Error("an error with a status of its own:", err)
	}
	own = nil
	_, err = client.Check(from(t, "acme"), &request{})
	if status.Code(err) != codes.ResourceExhausted || retryOf(err) < 59*time.Minute ||
		status.Convert(err).Message() == "" || <-counted != 429 {
		t.Error(err, retryOf(err))
	}
	stream, err := client.Watch(from(t, "acme"), &request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

func TestRefuses_a_cost_that_no_call_can_have(t *testing.T) {
	for _, units := range []int64{-1, 1e12 + 1} {
		cost := func(context.Context, grpcthrottle.Call) int64 { return units }
		limits := limitsOf(t, limiterAt(t, "127.0.0.1:1"), []*throttle.Rule{hourly(2)},
			grpcthrottle.CostFunc(cost))
		_, err := serve(t, limits, &service{}).Check(from(t, "acme"), &request{})
		said := status.Convert(err)
		if said.Code() != codes.InvalidArgument || said.Message() != throttle.InvalidCost().Detail {
			t.Error(units, err)
		}
	}
}
