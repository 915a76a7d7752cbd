package throttle

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func newTestLimiter(t *testing.T, s *script, opts ...Option) *Limiter {
	t.Helper()
	limiter, err := New(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	limiter.x.jitter = func() float64 { return 1 }
	return limiter
}

func testRule() *Rule { return Must(GCRA("api", 10, 10, time.Minute)) }

// callsOfAll returns a call of each method that takes a context.
func callsOfAll(l *Limiter, ctx context.Context, item Item) map[string]error {
	all := map[string]error{}
	note := func(name string) func(any, error) {
		return func(_ any, err error) { all[name] = err }
	}
	note("check")(l.Check(ctx, item))
	note("peek")(l.Peek(ctx, item))
	note("refund")(l.Refund(ctx, item))
	note("charge")(l.Charge(ctx, item))
	note("forget")(l.Forget(ctx, item))
	note("block")(nil, l.Block(ctx, item, time.Second))
	note("check all")(l.CheckAll(ctx, []Item{item}))
	note("peek all")(l.PeekAll(ctx, []Item{item}))
	note("check each")(l.CheckEach(ctx, []Item{item}))
	note("wait")(l.Wait(ctx, item, time.Second))
	note("lease")(l.Lease(ctx, item))
	note("admit")(l.Admit(ctx, []Item{item}))
	note("reserve")(l.Reserve(ctx, item, time.Second))
	return all
}

func TestInvalid_arguments_return_errors_and_do_not_panic(t *testing.T) {
	var nothing *Rule
	ctx, limiter := context.Background(), newTestLimiter(t, newScript())
	all := map[string]map[string]error{
		"nil context": callsOfAll(limiter, nil, testRule().Of("a")),
		"nil limiter": callsOfAll(nil, ctx, testRule().Of("a")),
		"zero rule":   callsOfAll(limiter, ctx, (&Rule{}).Of("a")),
		"nil rule":    callsOfAll(limiter, ctx, nothing.Of("a").Cost(2).Reserve(1, 0).Leave(1)),
		"zero item":   callsOfAll(limiter, ctx, Item{}),
		"no rule":     callsOfAll(limiter, ctx, Item{}.Reserve(1, 0).Cost(1)),
		"bad item":    callsOfAll(limiter, ctx, testRule().Of("a").Leave(-1)),
		"not UTF-8":   callsOfAll(limiter, ctx, testRule().Of("\xff")),
	}
	for what, errs := range all {
		for method, err := range errs {
			var wrong *InvalidArgument
			if !errors.As(err, &wrong) {
				t.Errorf("%s of %s: %v", method, what, err)
			}
		}
	}
	if _, err := limiter.Check(ctx, testRule().Of("a"), nil); err == nil {
		t.Error("a nil option")
	}
	if _, err := New(nil); err == nil {
		t.Error("a nil dialer")
	}
	if _, err := Policy("p", Start("1"), Zone("UTC")); err == nil {
		t.Error("a start of a policy")
	}
	var permit *Permit
	permit.Release(ctx)
	var admitted *Admission
	admitted.Finish(ctx)
	var reserved *Reservation
	reserved.Cancel(ctx)
	if admitted.Settle(testRule(), 1) == nil || reserved.Commit(ctx, 1) == nil {
		t.Error("a nil guard settles")
	}
	if _, err := permit.Renew(ctx); err == nil {
		t.Error("a nil permit renews")
	}
	for _, guard := range []interface {
		Held() bool
		Lost() <-chan struct{}
		ID() string
		Decision() Decision
	}{permit, admitted, reserved} {
		<-guard.Lost()
		if guard.Held() || guard.ID() != "" || guard.Decision().Allowed {
			t.Errorf("a nil %T holds", guard)
		}
	}
	var none context.Context
	if (*Limiter)(nil).Close(ctx) == nil || limiter.Close(none) == nil {
		t.Error("a nil limiter closes")
	}
	if err := limiter.Close(ctx); err != nil {
		t.Error(err)
	}
	for method, err := range callsOfAll(limiter, ctx, testRule().Of("a")) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", method, err)
		}
	}
	if err := limiter.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestOptions_are_validated(t *testing.T) {
	for name, one := range map[string]Option{
		"timeout": WithTimeout(0), "maxInFlight": WithMaxInFlight(0), "prefetch": WithPrefetch(0),
		"breakerFailures": WithBreaker(0, time.Second), "breakerPause": WithBreaker(1, 0),
		"denialCache": WithDenialCache(-1, 0), "denialCacheMax": WithDenialCache(1, -1),
		"backend": WithBackend("other"), "onError": WithOnError("open"),
		"hmacSecret": WithHMACSecret(""), "prefix": WithPrefix("{"),
	} {
		var wrong *InvalidArgument
		if _, err := New(newScript(), one); !errors.As(err, &wrong) || wrong.Argument != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLibrary_is_that_of_the_server(t *testing.T) {
	for name, own := range map[string]string{
		"redis_throttle.lua": functionsText, "redis_throttle_script.lua": scriptText,
	} {
		text, err := os.ReadFile("../../functions/" + name)
		if err != nil || string(text) != own {
			t.Errorf("lua/%s differs from functions/%s: copy it again (%v)", name, name, err)
		}
	}
	if isOlder("0.10.0", "0.9.1") || !isOlder("0.9.1", "0.10.0") || !isOlder("x", "0.1.0") {
		t.Error("versions")
	}
}
