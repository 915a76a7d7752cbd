package goredis

import (
	"context"
	"errors"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// rulesOfAll returns a rule of each kind that takes a cost, with a limit of 10.
func rulesOfAll() []*throttle.Rule {
	rules := []*throttle.Rule{
		throttle.Must(throttle.GCRA("gcra", 10, 1, time.Hour)),
		throttle.Must(throttle.TokenBucket("token", 10, 1, time.Hour)),
		throttle.Must(throttle.LeakyBucket("leaky", 10, 1, time.Hour)),
		throttle.Must(throttle.Fixed("fixed", 10, 24*time.Hour)),
		throttle.Must(throttle.Sliding("sliding", 10, 24*time.Hour)),
		throttle.Must(throttle.SlidingLog("log", 10, 24*time.Hour, throttle.Slots(64))),
	}
	policy := throttle.Must(throttle.Policy("policy", throttle.Default(rules[0])))
	return append(rules, policy)
}

// decided is a call of one item.
type decided = func(l *throttle.Limiter, i throttle.Item) (throttle.Decision, error)

var background = context.Background()

// methods are the calls of one item, in order, and the units that are left after each.
var methods = []struct {
	name string
	call decided
	left int64
}{
	{"check", func(l *throttle.Limiter, i throttle.Item) (throttle.Decision, error) {
		return l.Check(background, i.Cost(4))
	}, 6},
	{"peek", func(l *throttle.Limiter, i throttle.Item) (throttle.Decision, error) {
		return l.Peek(background, i.Cost(0))
	}, 6},
	{"refund", func(l *throttle.Limiter, i throttle.Item) (throttle.Decision, error) {
		return l.Refund(background, i.Cost(2))
	}, 8},
	{"charge", func(l *throttle.Limiter, i throttle.Item) (throttle.Decision, error) {
		return l.Charge(background, i.Cost(3))
	}, 5},
	{"leave", func(l *throttle.Limiter, i throttle.Item) (throttle.Decision, error) {
		return l.Check(background, i.LeavePercent(50))
	}, 5},
	{"partial", func(l *throttle.Limiter, i throttle.Item) (throttle.Decision, error) {
		return l.Check(background, i.Cost(7).Leave(2), throttle.Partial())
	}, 2},
}

func TestCalls_each_method_on_each_back_end(t *testing.T) {
	servers := map[throttle.Backend]*instance{
		throttle.BackendModule: start(t, live.Module(t)...), throttle.BackendFunctions: start(t),
		throttle.BackendScript: start(t),
	}
	for backend, server := range servers {
		t.Run(string(backend), func(t *testing.T) {
			limiter := limiterOf(t, server.rdb, patient, throttle.WithBackend(backend))
			for _, rule := range rulesOfAll() {
				for _, method := range methods {
					d, err := method.call(limiter, rule.Of("t"))
					isServers := err == nil && d.Source == throttle.SourceServer
					if !isServers || d.Remaining != method.left {
						t.Errorf("%s of %s: %v, %v", method.name, rule, d, err)
					}
				}
			}
			callsOthers(t, limiter)
		})
	}
}

// callsOthers calls the methods that are not in the table.
func callsOthers(t *testing.T, limiter *throttle.Limiter) {
	t.Helper()
	ctx := background
	login := throttle.Must(throttle.Backoff("login", 1, time.Minute, time.Hour, 24*time.Hour))
	first, second := check(t, limiter, login.Of("t")), check(t, limiter, login.Of("t"))
	if !first.Allowed || second.Allowed {
		t.Error(first, second)
	}
	jobs := throttle.Must(throttle.Lease("jobs", 1, time.Minute))
	permit, err := limiter.Lease(ctx, jobs.Of("t"))
	if err != nil {
		t.Fatal(err)
	}
	if isHeld, err := permit.Renew(ctx); !isHeld || err != nil {
		t.Error("renew", err)
	}
	var denied *throttle.Denied
	if _, err := limiter.Lease(ctx, jobs.Of("t")); !errors.As(err, &denied) {
		t.Error("a second lease", err)
	}
	permit.Release(ctx)
	admitted, err := limiter.Admit(ctx, []throttle.Item{login.Of("u"), jobs.Of("t")})
	if err != nil {
		t.Fatal(err)
	}
	admitted.Finish(ctx)
	items := []throttle.Item{login.Of("v"), rulesOfAll()[6].Of("u").Cost(10)}
	for name, call := range map[string]func(
		context.Context, []throttle.Item, ...throttle.CallOption,
	) (throttle.Decision, error){"peek all": limiter.PeekAll, "check all": limiter.CheckAll} {
		if d, err := call(ctx, items); err != nil || d.Source != throttle.SourceServer {
			t.Error(name, d, err)
		}
	}
	if err := limiter.Block(ctx, login.Of("w"), time.Hour); err != nil {
		t.Error("block", err)
	}
	if d := check(t, limiter, login.Of("w")); d.Allowed || d.RetryAfter < 59*time.Minute {
		t.Error(d)
	}
	for _, isThere := range []bool{true, false} {
		if was, err := limiter.Forget(ctx, login.Of("w")); was != isThere || err != nil {
			t.Error("forget", was, err)
		}
	}
}
