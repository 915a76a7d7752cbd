package goredis

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// watched is a dialer that calls act before and after each operation of its connections.
type watched struct {
	throttle.Dialer
	act func()
}

type watchedConn struct {
	throttle.Conn
	act func()
}

func (w watched) Dial(ctx context.Context, node string) (throttle.Conn, error) {
	w.act()
	conn, err := w.Dialer.Dial(ctx, node)
	w.act()
	if err != nil {
		return nil, err
	}
	return watchedConn{conn, w.act}, nil
}

func (w watchedConn) Send(words []string) error {
	w.act()
	return w.Conn.Send(words)
}

func (w watchedConn) Receive() (any, error) {
	reply, err := w.Conn.Receive()
	w.act()
	return reply, err
}

// atTurn returns a function that calls act when it is called for the n-th time.
func atTurn(n int64, act func()) (count *atomic.Int64, called func()) {
	count = &atomic.Int64{}
	return count, func() {
		if count.Add(1) == n {
			act()
		}
	}
}

// work has the rules of a program that calls a model.
type work struct {
	requests, tokens, month, runs *throttle.Rule
}

const (
	// Renewed each second. A busy machine has two more seconds for a renewal.
	workTTL = 3 * time.Second
	quota   = 100_000
	actual  = 1500
)

func newWork() work {
	return work{
		requests: throttle.Must(throttle.GCRA("rpm", 1000, 1, time.Hour)),
		tokens:   throttle.Must(throttle.GCRA("tpm", 1_000_000, 100, time.Hour)),
		month:    throttle.Must(throttle.Quota("month", quota, throttle.Month)),
		runs:     throttle.Must(throttle.Lease("runs", 3, workTTL)),
	}
}

// run does the work of a program, in which leases and reservations are renewed. It returns true if
// it was admitted.
func (w work) run(ctx context.Context, limiter *throttle.Limiter) (bool, error) {
	admitted, err := limiter.Admit(ctx, []throttle.Item{
		w.requests.Of("t"), w.tokens.Of("t").Cost(1800),
		w.month.Of("t").Reserve(1800, workTTL), w.runs.Of("t"),
	})
	if err != nil {
		return false, err
	}
	defer admitted.Finish(ctx)
	select {
	case <-ctx.Done():
	case <-time.After(workTTL * 2 / 5):
	}
	if err := admitted.Settle(w.tokens, 2000); err != nil {
		return true, err
	}
	return true, admitted.Settle(w.month, actual)
}

// left returns the units that are left of the month, and the permits.
func (w work) left(t *testing.T, limiter *throttle.Limiter) [2]int64 {
	t.Helper()
	var left [2]int64
	for at, rule := range []*throttle.Rule{w.month, w.runs} {
		item := rule.Of("t")
		if rule == w.month {
			item = item.Cost(0)
		}
		d, err := limiter.Peek(context.Background(), item)
		if err != nil || d.Source != throttle.SourceServer {
			t.Fatal(d, err)
		}
		left[at] = d.Remaining
	}
	return left
}

// isOver waits until nothing is held, and the month was charged for one of these amounts.
func (w work) isOver(t *testing.T, limiter *throttle.Limiter, charged ...int64) {
	t.Helper()
	var left [2]int64
	isRight := func() bool {
		left = w.left(t, limiter)
		// A peek of a lease counts the permit that it requests.
		return left[1] >= 2 && slices.Contains(charged, quota-left[0])
	}
	for end := time.Now().Add(time.Minute); !isRight(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left are %v, want one of %v charged", left, charged)
		}
	}
}

// startFrozen starts a server whose clock stands still: no lease and no reservation expires.
func startFrozen(t *testing.T) *instance {
	t.Helper()
	server := start(t, append(live.Module(t), "--rl.debug-commands", "yes")...)
	if err := server.rdb.Do(t.Context(), "RL.DEBUG", "CLOCK", "FREEZE").Err(); err != nil {
		t.Fatal(err)
	}
	return server
}

func TestSettles_what_the_work_took(t *testing.T) {
	t.Parallel()
	server := startFrozen(t)
	limiter, w := limiterOf(t, server.rdb, patient), newWork()
	if isAdmitted, err := w.run(context.Background(), limiter); !isAdmitted || err != nil {
		t.Fatal(err)
	}
	w.isOver(t, limiter, actual)
	d, err := limiter.Peek(context.Background(), w.tokens.Of("t").Cost(0))
	if err != nil || d.Remaining != 1_000_000-2000 {
		t.Error(d, err)
	}
	if n := limiter.Counters().Unsettled; n != 0 {
		t.Errorf("%d ends failed", n)
	}
}

func TestNothing_stays_held_when_cancelled_at_any_moment(t *testing.T) {
	t.Parallel()
	server := startFrozen(t)
	observer, w := limiterOf(t, server.rdb, patient), newWork()
	for n := int64(1); ; n++ {
		server.rdb.FlushAll(context.Background())
		ctx, cancel := context.WithCancel(context.Background())
		count, act := atTurn(n, cancel)
		limiter := limiterFrom(t, watched{Adapt(server.rdb), act}, patient)
		isAdmitted, err := w.run(ctx, limiter)
		cancel()
		if !isAdmitted && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		charged := int64(0)
		if isAdmitted {
			charged = actual
		}
		w.isOver(t, observer, charged)
		if count.Load() < n {
			break
		}
	}
}

func TestNothing_stays_held_when_any_reply_is_lost(t *testing.T) {
	t.Parallel()
	server := startFrozen(t)
	p := startProxy(t, server.addr)
	observer, w := limiterOf(t, server.rdb, patient), newWork()
	lose := func() { p.set(func(p *proxy) { p.loses = true }) }
	for n := int64(1); ; n++ {
		server.rdb.FlushAll(context.Background())
		count, act := atTurn(n, lose)
		limiter := limiterFrom(t, watched{Adapt(p.client()), act}, patient,
			throttle.WithBreaker(100, time.Millisecond))
		isAdmitted, err := w.run(context.Background(), limiter)
		if !isAdmitted || err != nil {
			t.Fatal(err)
		}
		charged := int64(actual)
		if n == 1 {
			// The dial failed, so the call was not sent.
			charged = 0
		}
		w.isOver(t, observer, charged)
		if count.Load() < n {
			break
		}
		p.set(func(p *proxy) { p.loses = false })
	}
}

func TestNothing_stays_held_when_the_server_falls_silent(t *testing.T) {
	t.Parallel()
	server := start(t, live.Module(t)...)
	p := startProxy(t, server.addr)
	observer, w := limiterOf(t, server.rdb, patient), newWork()
	limiter := limiterOf(t, p.client(), throttle.WithTimeout(250*time.Millisecond),
		throttle.WithBreaker(2, 50*time.Millisecond))
	isSilent := time.AfterFunc(workTTL/4, func() {
		p.set(func(p *proxy) { p.isSilent = true })
		time.AfterFunc(workTTL/2, func() { p.set(func(p *proxy) { p.isSilent = false }) })
	})
	defer isSilent.Stop()
	isAdmitted, err := w.run(context.Background(), limiter)
	if !isAdmitted || err != nil {
		t.Fatal(err)
	}
	w.isOver(t, observer, 0, actual)
}

func TestReserves_by_each_rule_that_can(t *testing.T) {
	server := start(t, live.Module(t)...)
	limiter := limiterOf(t, server.rdb, patient)
	day := throttle.Must(throttle.Fixed("day", 100, 24*time.Hour))
	plan := throttle.Must(throttle.Policy("plan", throttle.Default(day)))
	ctx := context.Background()
	for _, rule := range []*throttle.Rule{day, plan, newWork().month} {
		reserved, err := limiter.Reserve(ctx, rule.Of("t").Cost(30), 0)
		if err != nil {
			t.Fatal(rule, err)
		}
		before := reserved.Decision().Remaining
		if err := reserved.Commit(ctx, 10); err != nil {
			t.Fatal(rule, err)
		}
		d, err := limiter.Peek(ctx, rule.Of("t").Cost(0))
		if err != nil || d.Remaining != before+20 {
			t.Error(rule, d, err)
		}
		other, err := limiter.Reserve(ctx, rule.Of("t"), time.Second)
		if err != nil {
			t.Fatal(rule, err)
		}
		other.Cancel(ctx)
		if after, err := limiter.Peek(ctx, rule.Of("t").Cost(0)); after.Remaining != d.Remaining {
			t.Error(rule, after, err)
		}
		if err := other.Commit(ctx, 1); err == nil {
			t.Error("a commit after the end")
		}
	}
}
