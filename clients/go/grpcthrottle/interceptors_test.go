package grpcthrottle_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/grpcthrottle"
	"redis-throttle.invalid/go/internal/live"
	"redis-throttle.invalid/go/throttletest"
)

// retryOf returns the delay of a status; -1 if it has none.
func retryOf(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			return retry.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

func hourly(burst int64, options ...throttle.RuleOption) *throttle.Rule {
	return throttle.Must(throttle.GCRA("api", burst, 1, time.Hour, options...))
}

// left returns the units of a rule that are left.
func left(t *testing.T, limiter *throttle.Limiter, rule *throttle.Rule) int64 {
	t.Helper()
	item := rule.Of("acme")
	if rule.TakesCost() {
		item = item.Cost(0)
	}
	d, err := limiter.Peek(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestDenies_with_ResourceExhausted_and_a_retry_delay(t *testing.T) {
	var seen error
	see := func(
		ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		response, err := handler(ctx, request)
		seen = err
		return response, err
	}
	limits := limitsOf(t, liveLimiter(t), []*throttle.Rule{hourly(2)})
	calls := 0
	count := func(context.Context) error { calls++; return nil }
	client := serve(t, limits, &service{check: count}, see)
	for range 2 {
		if _, err := client.Check(from(t, "acme"), &request{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.Check(from(t, "acme"), &request{})
	retry := retryOf(err)
	if status.Code(err) != codes.ResourceExhausted || retry <= 59*time.Minute || retry > time.Hour {
		t.Errorf("%v, again in %v", err, retry)
	}
	var denied *throttle.Denied
	if !errors.As(seen, &denied) || denied.Decision.Rule != "api" || calls != 2 {
		t.Errorf("after %d calls the outer interceptor sees %v", calls, seen)
	}
	if _, err := client.Check(from(t, "other"), &request{}); err != nil {
		t.Error(err)
	}
}

func TestDenies_a_cost_above_the_limit_without_a_retry_delay(t *testing.T) {
	cost := func(_ context.Context, call grpcthrottle.Call) int64 {
		if strings.HasSuffix(call.Method, "/Check") && call.Request.(*request).Service == "large" {
			return 10
		}
		return 1
	}
	rules := []*throttle.Rule{hourly(2), throttle.Must(throttle.Fixed("all", 9, time.Hour))}
	limits := limitsOf(t, liveLimiter(t), rules, grpcthrottle.CostFunc(cost))
	client := serve(t, limits, &service{})
	_, err := client.Check(from(t, "acme"), &request{Service: "large"})
	if status.Code(err) != codes.ResourceExhausted || retryOf(err) != -1 {
		t.Error(err, retryOf(err))
	}
	if _, err = client.Check(from(t, "acme"), &request{}); err != nil {
		t.Error(err)
	}
}

func TestDenies_a_banned_caller_with_PermissionDenied(t *testing.T) {
	limiter, err := throttle.New(live.Banning())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close(context.Background()) })
	never := func(context.Context) error { t.Error("was served"); return nil }
	client := serve(t, limitsOf(t, limiter, []*throttle.Rule{hourly(10)}), &service{check: never})
	_, err = client.Check(from(t, "acme"), &request{})
	said := status.Convert(err)
	if said.Code() != codes.PermissionDenied || said.Message() != "This caller is blocked." ||
		retryOf(err) != -1 {
		t.Error(err, retryOf(err))
	}
}

func TestNeeds_a_subject_unless_the_call_is_skipped(t *testing.T) {
	isCheck := func(_ context.Context, call grpcthrottle.Call) bool {
		return call.Method == "/grpc.health.v1.Health/Check"
	}
	end := &service{watch: func(updates) error { return nil }}
	limits := limitsOf(t, liveLimiter(t), []*throttle.Rule{hourly(1)}, grpcthrottle.Skip(isCheck))
	client := serve(t, limits, end)
	for range 2 {
		if _, err := client.Check(t.Context(), &request{}); err != nil {
			t.Error(err)
		}
	}
	stream, err := client.Watch(t.Context(), &request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

func TestNeeds_a_subject_that_the_key_function_finds(t *testing.T) {
	limiter := limiterAt(t, "127.0.0.1:1")
	for what, key := range map[string]grpcthrottle.Key{
		"index": func(ctx context.Context, _ grpcthrottle.Call) string {
			return metadata.ValueFromIncomingContext(ctx, "user")[0]
		},
		"not UTF-8": func(context.Context, grpcthrottle.Call) string { return "\xff" },
	} {
		limits, err := grpcthrottle.New(limiter, key, []*throttle.Rule{hourly(1)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = serve(t, limits, &service{}).Check(t.Context(), &request{})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestHolds_a_lease_until_the_stream_ends(t *testing.T) {
	limiter := liveLimiter(t)
	streams := throttle.Must(throttle.Lease("streams", 1, time.Hour))
	left, goOn := make(chan struct{}, 1), make(chan struct{})
	hold := func(stream updates) error {
		_ = stream.Send(&response{})
		<-stream.Context().Done()
		select {
		case left <- struct{}{}:
		default:
		}
		<-goOn
		return stream.Context().Err()
	}
	client := serve(t, limitsOf(t, limiter, []*throttle.Rule{hourly(99), streams}),
		&service{watch: hold})
	let := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(let)
	// open returns the error of a stream's first message.
	open := func(ctx context.Context) error {
		stream, err := client.Watch(ctx, &request{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	ctx, hangUp := context.WithCancel(from(t, "acme"))
	defer hangUp()
	if err := open(ctx); err != nil {
		t.Fatal(err)
	}
	err := open(from(t, "acme"))
	if status.Code(err) != codes.ResourceExhausted || retryOf(err) <= 0 {
		t.Fatal(err)
	}
	hangUp()
	<-left
	for range 20 {
		if err := open(from(t, "acme")); status.Code(err) != codes.ResourceExhausted {
			t.Fatal("while the handler runs:", err)
		}
	}
	let()
	live.Await(t, "the lease is free", func() bool { return open(from(t, "acme")) == nil })
}

// recovers returns the status DataLoss for a panic.
func recovers(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (response any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.DataLoss, "panic")
		}
	}()
	return handler(ctx, request)
}

func TestReleases_a_lease_when_a_handler_or_a_key_function_panics(t *testing.T) {
	limiter := liveLimiter(t)
	runs := throttle.Must(throttle.Lease("runs", 1, 30*time.Second))
	panics := false
	key := func(ctx context.Context, call grpcthrottle.Call) string {
		if call.Request.(*request).Service == "key" {
			panic("key")
		}
		return tenant(ctx, call)
	}
	limits, err := grpcthrottle.New(limiter, key, []*throttle.Rule{runs})
	if err != nil {
		t.Fatal(err)
	}
	client := serve(t, limits, &service{check: func(context.Context) error {
		if panics {
			panic("handler")
		}
		return nil
	}}, recovers)
	for _, where := range []string{"key", "handler"} {
		panics = where == "handler"
		_, err := client.Check(from(t, "acme"), &request{Service: where})
		if status.Code(err) != codes.DataLoss {
			t.Fatal(err)
		}
		panics = false
		live.Await(t, "the lease is back after the panic of a "+where, func() bool {
			_, err := client.Check(from(t, "acme"), &request{})
			return err == nil
		})
		live.Await(t, "the lease of that call is back", func() bool {
			return isFree(t, limiter, runs)
		})
	}
}

func TestResponds_before_the_lease_is_released_and_Close_awaits_the_release(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: live.Start(t)})
	t.Cleanup(func() { _ = rdb.Close() })
	limiter := limiterAt(t, rdb.Options().Addr)
	runs := throttle.Must(throttle.Lease("runs", 1, time.Hour))
	ctx := from(t, "acme")
	client := serve(t, limitsOf(t, limiter, []*throttle.Rule{runs}),
		&service{check: func(context.Context) error {
			return rdb.Do(ctx, "CLIENT", "PAUSE", "60000", "WRITE").Err()
		}})
	if _, err := client.Check(ctx, &request{}); err != nil || rdb.DBSize(ctx).Val() != 1 {
		t.Fatal("after the release:", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- limiter.Close(ctx) }()
	live.Await(t, "Close begins", func() bool {
		_, err := limiter.Peek(ctx, hourly(1).Of("a"))
		return errors.Is(err, throttle.ErrClosed)
	})
	rdb.Do(ctx, "CLIENT", "UNPAUSE")
	if err := <-closed; err != nil || rdb.DBSize(ctx).Val() != 0 {
		t.Error(err, limiter.Counters())
	}
}

func TestGives_back_what_does_not_count(t *testing.T) {
	limiter := liveLimiter(t)
	failed := hourly(9, throttle.WithCount(throttle.CountFailures))
	all := throttle.Must(throttle.Fixed("all", 9, time.Hour))
	broken := throttle.Must(throttle.Fixed("broken", 9, time.Hour,
		throttle.WithCount(throttle.CountIf(func(int) bool { panic("count") }))))
	runs := throttle.Must(throttle.Lease("runs", 1, 30*time.Second))
	var result func() error
	client := serve(t, limitsOf(t, limiter, []*throttle.Rule{failed, all, broken, runs}),
		&service{check: func(context.Context) error { return result() }}, recovers)
	for _, call := range []struct {
		result func() error
		left   int64
	}{
		{func() error { return nil }, 9},
		{func() error { return status.Error(codes.Unauthenticated, "wrong password") }, 8},
		{func() error { return nil }, 8},
		{func() error { return errors.New("plain") }, 7},
		{func() error { panic("handler") }, 6},
	} {
		result = call.result
		_, _ = client.Check(from(t, "acme"), &request{})
		live.Await(t, "the units and the lease are given back", func() bool {
			return left(t, limiter, failed) == call.left && isFree(t, limiter, runs)
		})
	}
	if left(t, limiter, all) != 4 || left(t, limiter, broken) != 4 {
		t.Error(left(t, limiter, all), left(t, limiter, broken))
	}
}

func TestLimits_failed_logins_by_a_backoff(t *testing.T) {
	logins := throttle.Must(throttle.Backoff("logins", 2, time.Hour, 2*time.Hour, 3*time.Hour,
		throttle.WithCount(throttle.CountFailures)))
	limiter := liveLimiter(t)
	free := left(t, limiter, logins)
	var result error
	client := serve(t, limitsOf(t, limiter, []*throttle.Rule{logins}),
		&service{check: func(context.Context) error { return result }})
	call := func() codes.Code {
		_, err := client.Check(from(t, "acme"), &request{})
		return status.Code(err)
	}
	for range 4 {
		if code := call(); code != codes.OK {
			t.Fatal(code)
		}
		live.Await(t, "the attempt is given back", func() bool {
			return left(t, limiter, logins) == free
		})
	}
	result = status.Error(codes.Unauthenticated, "wrong password")
	for _, code := range []codes.Code{
		codes.Unauthenticated, codes.Unauthenticated, codes.ResourceExhausted,
	} {
		if got := call(); got != code {
			t.Errorf("%v, not %v", got, code)
		}
	}
}

func TestIs_Unavailable_if_OnError_denies(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	limiter := limiterAt(t, silent.Addr().String(), throttle.WithTimeout(20*time.Millisecond))
	for onError, code := range map[throttle.OnError]codes.Code{
		throttle.Allow: codes.OK, throttle.Deny: codes.Unavailable,
	} {
		for _, rule := range []*throttle.Rule{
			hourly(1, throttle.WithOnError(onError)),
			throttle.Must(throttle.Lease("runs", 1, time.Second, throttle.WithOnError(onError))),
		} {
			client := serve(t, limitsOf(t, limiter, []*throttle.Rule{rule}), &service{})
			_, err := client.Check(from(t, "acme"), &request{})
			if status.Code(err) != code || code != codes.OK && retryOf(err) != time.Second {
				t.Error(rule, err, retryOf(err))
			}
		}
	}
}

func TestRuns_no_handler_after_the_clients_own_deadline(t *testing.T) {
	server := throttletest.NewServer()
	server.Hang()
	limiter, err := throttle.New(server, throttle.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(t.Context())
	limits := limitsOf(t, limiter, []*throttle.Rule{hourly(1)})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("tenant", "acme"))
	ctx, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	runs := 0
	_, err = limits.Unary(ctx, &request{}, &grpc.UnaryServerInfo{}, func(
		context.Context, any,
	) (any, error) {
		runs++
		return nil, nil
	})
	if status.Code(err) != codes.DeadlineExceeded || runs != 0 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

func TestHides_the_text_of_a_rejection(t *testing.T) {
	limiter := liveLimiter(t)
	rule := throttle.Must(throttle.Policy("unknown"))
	client := serve(t, limitsOf(t, limiter, []*throttle.Rule{rule}), &service{})
	_, err := client.Check(from(t, "acme"), &request{})
	text := status.Convert(err).Message()
	if status.Code(err) != codes.Internal || text != "The rate limiter failed." {
		t.Error(err)
	}
	if err := limiter.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err = client.Check(from(t, "acme"), &request{}); status.Code(err) != codes.Internal {
		t.Error("after Close:", err)
	}
}

func TestReturns_an_error_for_each_invalid_argument(t *testing.T) {
	limiter := limiterAt(t, "127.0.0.1:1")
	one, many := []*throttle.Rule{hourly(1)}, make([]*throttle.Rule, 17)
	strict := limiterAt(t, "127.0.0.1:1", throttle.WithOnError(throttle.Local))
	runs := []*throttle.Rule{throttle.Must(throttle.Lease("runs", 1, time.Second))}
	for what, call := range map[string]func() (*grpcthrottle.Limits, error){
		"limiter": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(nil, tenant, one)
		},
		"key": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(limiter, nil, one)
		},
		"rules": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(limiter, tenant, nil)
		},
		"17 rules": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(limiter, tenant, many)
		},
		"nil rule": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(limiter, tenant, many[:1])
		},
		"repeated name": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(limiter, tenant, append(one, hourly(2)))
		},
		"no local limit": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(strict, tenant, runs)
		},
		"nil option": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(limiter, tenant, one, nil)
		},
		"nil cost": func() (*grpcthrottle.Limits, error) {
			return grpcthrottle.New(limiter, tenant, one, grpcthrottle.CostFunc(nil))
		},
	} {
		var invalid *throttle.InvalidArgument
		if limits, err := call(); limits != nil || !errors.As(err, &invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	info := &grpc.UnaryServerInfo{}
	ok := func(context.Context, any) (any, error) { return nil, nil }
	if _, err := (*grpcthrottle.Limits)(nil).Unary(t.Context(), nil, info, ok); err == nil {
		t.Error("nil limits allowed a call")
	}
}
