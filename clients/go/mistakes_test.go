package throttle

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
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

func TestMistakes_are_errors_and_no_panics(t *testing.T) {
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
	for mistake, errs := range all {
		for method, err := range errs {
			var wrong *InvalidArgument
			if !errors.As(err, &wrong) {
				t.Errorf("%s of %s: %v", method, mistake, err)
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

func TestGuards_end_without_a_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		limiter := newTestLimiter(t, s)
		s.add([]any{[]any{1.0, 3.0, 2.0, 0.0, 6000.0}, 1.0}, "")
		jobs := Must(Lease("jobs", 3, 6*time.Second))
		permit, err := limiter.Lease(context.Background(), jobs.Of("t"))
		if err != nil {
			t.Fatal(err)
		}
		var none context.Context
		permit.Release(none)
		permit.Release(none)
		if sent := s.seen().sent; len(sent) != 2 || !strings.HasPrefix(sent[1], "RL.RELEASE") {
			t.Error(sent)
		}
		if err := limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestOdd_replies_are_rejected(t *testing.T) {
	for _, reply := range []any{
		"OK", nil, 1.0, []any{}, []any{1.0}, []any{1.0, 2.0, 3.0, -2.0, 0.0},
		[]any{[]any{}, 1.0, 1.0, 1.0, 1.0}, []any{-1.0, 1.0, 1.0, 0.0, 0.0},
	} {
		s := newScript()
		limiter := newTestLimiter(t, s)
		for range 12 {
			s.add([]any{reply}, "")
		}
		for method, err := range callsOfAll(limiter, context.Background(), testRule().Of("a")) {
			var rejected *CommandRejected
			switch method {
			case "lease", "reserve", "block", "forget":
			default:
				if !errors.As(err, &rejected) || rejected.Kind != "PROTOCOL" {
					t.Errorf("%s of %v: %v", method, reply, err)
				}
			}
		}
		if err := limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestHook_gets_events_and_its_panic_changes_nothing(t *testing.T) {
	s := newScript()
	var events []Event
	limiter := newTestLimiter(t, s, WithHMACSecret("0123456789abcdef"),
		WithOnDecision(func(event Event) {
			events = append(events, event)
			panic("a hook")
		}))
	var log strings.Builder
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	s.add([]any{[]any{0.0, 10.0, 0.0, 6000.0, 60000.0}, object{"error": "WRONGTYPE of a key"}}, "")
	ctx, item := context.Background(), testRule().Of("user:42")
	d, err := limiter.Check(ctx, item)
	if err != nil || d.Allowed || d.String() != "api: denied, again in 6s (server)" {
		t.Fatal(d, err)
	}
	if _, err := limiter.Charge(ctx, item); err == nil {
		t.Error("a wrong type")
	}
	if err := limiter.Close(ctx); err != nil {
		t.Error(err)
	}
	if len(events) != 2 || events[0].Kind != EventCheck || events[1].Kind != EventRejected {
		t.Fatal(events)
	}
	if len(events[0].KeyHash) != 16 || events[1].Err == nil || events[1].Decision != nil {
		t.Error(events)
	}
	slog.Info("decided", "event", events[0])
	for _, wanted := range []string{"panicked", "event.kind=check", "event.allowed=false"} {
		if !strings.Contains(log.String(), wanted) {
			t.Errorf("no %s in %s", wanted, log.String())
		}
	}
	if strings.Contains(log.String(), "user:42") {
		t.Error("the log has the subject")
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

// FuzzReplies reads replies of any shape, which must not panic.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5}, false)
	f.Add([]byte{9, 1, 6, 5, 0, 9, 9, 1, 6, 5, 0, 9, 8, 8, 1, 1}, true)
	rules := []*Rule{testRule(), Must(Policy("p")), Must(Lease("l", 3, time.Second))}
	f.Fuzz(func(t *testing.T, bytes []byte, isPartial bool) {
		reply, _ := fuzzed(bytes, 0)
		var asks []*ask
		for _, rule := range rules {
			a := &ask{rule: rule, cost: 2, partial: isPartial}
			asks = append(asks, a)
			if d, err := readDecision(reply, a); err == nil {
				styles := []HeaderStyle{Draft11, XRateLimit}
				_, _ = d.String(), d.Headers(HeaderOptions{Styles: styles})
				_ = d.aged(time.Second).Problem()
			}
			_, _ = readSettled(reply, rule)
			_, _ = readSeveral(reply, asks)
		}
		_, _ = readInteger(reply)
	})
}

// fuzzed returns a value of a reply that bytes describe, and the rest.
func fuzzed(bytes []byte, depth int) (any, []byte) {
	if len(bytes) == 0 {
		return nil, nil
	}
	first, rest := bytes[0], bytes[1:]
	switch {
	case first < 200 || depth > 4:
		return int64(int8(first)) << (first % 60), rest
	case first < 210:
		return string(rest), nil
	case first < 215:
		return nil, rest
	}
	list := []any{}
	for range first % 12 {
		var one any
		one, rest = fuzzed(rest, depth+1)
		list = append(list, one)
	}
	return list, rest
}
