package goredis

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
	"redis-throttle.invalid/go/throttletest"
)

// twins are a server with a frozen clock and a fake server, at the same instant.
type twins struct {
	t      *testing.T
	server *instance
	fake   *throttletest.Server
	// limiters are those of the server and of the fake.
	limiters [2]*throttle.Limiter
}

func startTwins(t *testing.T, server *instance) *twins {
	t.Helper()
	ctx := t.Context()
	server.rdb.FlushAll(ctx)
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	if err := server.rdb.Do(ctx, "RL.DEBUG", "CLOCK", "FREEZE", start).Err(); err != nil {
		t.Fatal(err)
	}
	w := &twins{t: t, server: server, fake: throttletest.NewServer()}
	for at, dialer := range []throttle.Dialer{Adapt(server.rdb), w.fake} {
		w.limiters[at] = limiterFrom(t, dialer, patient)
	}
	return w
}

func (w *twins) advance(d time.Duration) {
	w.t.Helper()
	word := fmt.Sprintf("%dms", d.Milliseconds())
	moved := w.server.rdb.Do(w.t.Context(), "RL.DEBUG", "CLOCK", "ADVANCE", word)
	if err := moved.Err(); err != nil {
		w.t.Fatal(err)
	}
	w.fake.Advance(d)
}

// both makes the same call with both limiters, and compares the results.
func (w *twins) both(name string, call func(*throttle.Limiter) (any, error)) {
	w.t.Helper()
	wanted, problem := call(w.limiters[0])
	got, err := call(w.limiters[1])
	if !reflect.DeepEqual(got, wanted) || fmt.Sprint(err) != fmt.Sprint(problem) {
		w.t.Fatalf("%s:\nfake   %+v, %v\nserver %+v, %v", name, got, err, wanted, problem)
	}
}

func pick[T any](chance *rand.Rand, all ...T) T { return all[chance.IntN(len(all))] }

func rulesOfFake() []*throttle.Rule {
	const s = time.Second
	must := throttle.Must
	return []*throttle.Rule{
		must(throttle.GCRA("gcra", 6, 10, 60*s)),
		must(throttle.GCRA("odd", 5, 7, s)),
		must(throttle.TokenBucket("token", 10, 3, 6*s)),
		must(throttle.LeakyBucket("leaky", 4, 2, s)),
		must(throttle.Fixed("fixed", 5, 10*s)),
		must(throttle.Fixed("aligned", 5, 10*s, throttle.Aligned())),
		must(throttle.Sliding("sliding", 20, s)),
		must(throttle.SlidingLog("log", 5, 10*s)),
	}
}

// step makes a random call of one rule.
func (w *twins) step(chance *rand.Rand, rule *throttle.Rule) {
	w.t.Helper()
	opts, verb, cost := []throttle.CallOption(nil), chance.IntN(12), pick[int64](chance, 1, 2, 0, 7)
	if verb < 2 {
		cost = max(1, cost)
	}
	item := rule.Of("42").Cost(cost)
	switch leave := chance.IntN(6); {
	case verb < 2:
	case leave == 0:
		item = item.Leave(pick[int64](chance, 1, 3))
	case leave == 1:
		item = item.LeavePercent(pick[int](chance, 20, 100))
	}
	if verb > 3 && cost > 0 && chance.IntN(4) == 0 {
		opts = append(opts, throttle.Partial())
	}
	w.both(fmt.Sprint("verb ", verb, " of ", item), func(l *throttle.Limiter) (any, error) {
		ctx := w.t.Context()
		switch verb {
		case 0:
			return l.Refund(ctx, item)
		case 1:
			return l.Charge(ctx, item)
		case 2:
			return l.Peek(ctx, item)
		}
		return l.Check(ctx, item, opts...)
	})
}

func TestFake_decides_as_the_server_does(t *testing.T) {
	server := start(t, append(live.Module(t), "--rl.debug-commands", "yes")...)
	pauses := []time.Duration{1, 1, 250, 1000, 3333, 9999, 90_000, 86_400_000}
	for _, rule := range rulesOfFake() {
		t.Run(rule.Name(), func(t *testing.T) {
			w, chance := startTwins(t, server), rand.New(rand.NewPCG(1, 0))
			for range 300 {
				w.step(chance, rule)
				w.advance(pick(chance, pauses...) * time.Millisecond)
			}
		})
	}
}

func TestFake_decides_several_rules_as_the_server_does(t *testing.T) {
	server := start(t, append(live.Module(t), "--rl.debug-commands", "yes")...)
	w, chance := startTwins(t, server), rand.New(rand.NewPCG(1, 1))
	rules := rulesOfFake()
	for step := range 200 {
		var items []throttle.Item
		chance.Shuffle(len(rules), func(a, b int) { rules[a], rules[b] = rules[b], rules[a] })
		for _, rule := range rules[:1+chance.IntN(len(rules))] {
			item := rule.Of("42").Cost(chance.Int64N(3)).Leave(pick[int64](chance, 0, 0, 0, 1))
			items = append(items, item)
		}
		isPeek := chance.IntN(4) == 0
		w.both(fmt.Sprint("step ", step, items), func(l *throttle.Limiter) (any, error) {
			if isPeek {
				return l.PeekAll(t.Context(), items)
			}
			return l.CheckAll(t.Context(), items)
		})
		w.advance(pick[time.Duration](chance, 1, 250, 1000, 9000) * time.Millisecond)
	}
}
