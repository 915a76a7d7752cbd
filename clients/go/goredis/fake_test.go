package goredis

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
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
	conns    [2]throttle.Conn
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
		conn, err := dialer.Dial(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		w.conns[at] = conn
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
func (w *twins) both(name string, ask func(*throttle.Limiter) (any, error)) {
	w.t.Helper()
	wanted, problem := ask(w.limiters[0])
	got, err := ask(w.limiters[1])
	if !reflect.DeepEqual(got, wanted) || fmt.Sprint(err) != fmt.Sprint(problem) {
		w.t.Fatalf("%s:\nfake   %+v, %v\nserver %+v, %v", name, got, err, wanted, problem)
	}
}

// send sends the same words to both, and compares the replies.
func (w *twins) send(words ...string) {
	w.t.Helper()
	wanted, problem := ask(w.t.Context(), w.conns[0], words...)
	got, err := ask(w.t.Context(), w.conns[1], words...)
	if !reflect.DeepEqual(got, wanted) || fmt.Sprint(err) != fmt.Sprint(problem) {
		w.t.Fatalf("%v:\nfake   %v, %v\nserver %v, %v", words, got, err, wanted, problem)
	}
}

func pick[T any](chance *rand.Rand, all ...T) T { return all[chance.IntN(len(all))] }

func rulesOfFake() []*throttle.Rule {
	const s = time.Second
	must := throttle.Must
	return []*throttle.Rule{
		must(throttle.GCRA("gcra", 6, 10, 60*s)),
		must(throttle.GCRA("odd", 5, 7, s)),
		must(throttle.TokenBucket("token", 10, 3, 7*s)),
		must(throttle.LeakyBucket("leaky", 4, 2, s)),
		must(throttle.Fixed("fixed", 5, 10*s)),
		must(throttle.Fixed("aligned", 5, 10*s, throttle.Aligned())),
		must(throttle.Sliding("sliding", 20, 10*s)),
		must(throttle.SlidingLog("log", 5, 10*s)),
		must(throttle.SlidingLog("slots", 40, 10*s, throttle.Slots(17))),
		must(throttle.Backoff("backoff", 3, s, 8*s, 60*s)),
		must(throttle.Quota("day", 9, throttle.Day)),
		must(throttle.Quota("week", 9, throttle.Week)),
		must(throttle.Quota("month", 9, throttle.Month)),
		must(throttle.Quota("quarter", 9, throttle.Quarter)),
		must(throttle.Quota("year", 9, throttle.Year)),
		must(throttle.Policy("plan", throttle.Default(must(throttle.Fixed("plan", 5, 10*s))))),
	}
}

// step makes a random call of one rule.
func (w *twins) step(chance *rand.Rand, rule *throttle.Rule) {
	w.t.Helper()
	item, opts := rule.Of("42"), []throttle.CallOption(nil)
	verb := chance.IntN(12)
	if rule.TakesCost() {
		cost := pick[int64](chance, 1, 1, 1, 2, 0, 7)
		if verb < 2 {
			cost = max(1, cost)
		}
		item = item.Cost(cost)
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
	rules := append(rulesOfFake(), throttle.Must(throttle.Lease("jobs", 2, 3*time.Second)))
	for step := range 200 {
		var items []throttle.Item
		chance.Shuffle(len(rules), func(a, b int) { rules[a], rules[b] = rules[b], rules[a] })
		for _, rule := range rules[:1+chance.IntN(9)] {
			item := rule.Of("42")
			if rule.TakesCost() {
				item = item.Cost(chance.Int64N(3)).Leave(pick[int64](chance, 0, 0, 0, 1))
			}
			if rule.Kind() == throttle.KindQuota && chance.IntN(2) == 0 {
				item = rule.Of("42").Reserve(chance.Int64N(3), time.Minute)
			}
			items = append(items, item)
		}
		isPeek := chance.IntN(4) == 0
		w.both(fmt.Sprint("step ", step, items), func(l *throttle.Limiter) (any, error) {
			if id := throttle.ID(fmt.Sprint(step % 5)); isPeek {
				return l.PeekAll(t.Context(), items, id)
			} else {
				return l.CheckAll(t.Context(), items, id)
			}
		})
		w.advance(pick[time.Duration](chance, 1, 250, 1000, 9000) * time.Millisecond)
	}
}

func TestFake_keeps_reservations_as_the_server_does(t *testing.T) {
	server := start(t, append(live.Module(t), "--rl.debug-commands", "yes")...)
	for _, rule := range []string{
		"FIXED 9 10", "FIXED 9 10 ALIGNED", "QUOTA 9 day", "USE plan DEFAULT FIXED 9 10",
		"GCRA 9 9 10", "USE plan DEFAULT GCRA 9 9 10",
	} {
		t.Run(rule, func(t *testing.T) {
			w, chance := startTwins(t, server), rand.New(rand.NewPCG(1, 2))
			for range 400 {
				w.reserveOrEnd(chance, strings.Fields(rule))
				w.advance(pick[time.Duration](chance, 1, 400, 3000, 12_000) * time.Millisecond)
			}
		})
	}
}

// reserveOrEnd sends a random command to a key that has reservations.
func (w *twins) reserveOrEnd(chance *rand.Rand, rule []string) {
	w.t.Helper()
	at := len(rule)
	if rule[0] == "USE" {
		at = 2
	} else if at == 4 && rule[3] == "ALIGNED" {
		at = 3
	}
	with := func(options ...string) []string {
		return slices.Insert(slices.Clone(rule), at, options...)
	}
	id, cost := fmt.Sprint("job-", chance.IntN(5)), []string{"COST", fmt.Sprint(chance.IntN(5))}
	ttl := pick(chance, "2s", "5s", "90s")
	taking := cost
	if chance.IntN(3) == 0 {
		taking = append(taking, "LEAVE", pick(chance, "1", "3", "20%"))
	}
	command := func(name string, words ...string) {
		w.t.Helper()
		w.send(append([]string{name, "k"}, words...)...)
	}
	switch chance.IntN(14) {
	case 0:
		command("RL.COMMIT", append([]string{id}, with(cost...)...)...)
	case 1:
		command("RL.COMMIT", append([]string{id}, with()...)...)
	case 2:
		command("RL.CANCEL", append([]string{id}, with()...)...)
	case 3:
		command("RL.PEEK", with(taking...)...)
	case 4:
		command("RL.CHARGE", with(cost...)...)
	case 5:
		command("RL.REFUND", with(cost...)...)
	case 6:
		checked := with(taking...)
		command("RL."+checked[0], checked[1:]...)
	case 7:
		held := append([]string{"RESERVE", id, ttl}, with(cost...)...)
		w.send("RL.ALL", "k", strings.Join(held, " "), "other", "GCRA 40 40 60s")
	case 8:
		command("RL.BLOCK", "1s")
	case 9:
		// In frozen time the server keeps what has expired, and a DEL would count it.
		command("RL.BLOCK", "1s")
		command("DEL")
	default:
		command("RL.RESERVE", append([]string{id, ttl}, with(taking...)...)...)
	}
}

func TestFake_keeps_leases_and_bans_as_the_server_does(t *testing.T) {
	server := start(t, append(live.Module(t), "--rl.debug-commands", "yes")...)
	w, chance := startTwins(t, server), rand.New(rand.NewPCG(1, 3))
	for step := range 400 {
		// In frozen time the server keeps what has expired, so states of two types need a new key.
		key := fmt.Sprint("k", step)
		id, leave := fmt.Sprint("job-", chance.IntN(4)), pick(chance, "0", "1", "3", "50%")
		switch chance.IntN(12) {
		case 0, 1:
			w.send("RL.RELEASE", "k", id)
		case 2:
			w.send("RL.RENEW", "k", id, "5s")
		case 3:
			w.send("RL.PEEK", "k", "LEASE", id, "3", "5s", "LEAVE", leave)
		case 4:
			w.send("RL.BLOCK", "k", "1s")
		case 5:
			w.send("RL.LEASE", key, id, "3", "5s")
			w.send("RL.FIXED", key, "9", "1s", "COST", "2")
			w.send("RL.CHARGE", key, "GCRA", "9", "9", "10s")
			w.send("DEL", key)
		case 6:
			w.send("RL.CHARGE", key, "GCRA", "9", "9", "10s")
			w.send("RL.RELEASE", key, id)
			w.send("RL.LEASE", key, id, "3", "5s")
			w.send("DEL", key)
		default:
			w.send("RL.LEASE", "k", id, "3", "5s", "LEAVE", leave)
		}
		w.advance(pick[time.Duration](chance, 1, 400, 2000) * time.Millisecond)
	}
}
