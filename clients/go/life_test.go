package throttle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test on a frozen clock, and closes its limiter. No goroutine may be left.
func inBubble(
	t *testing.T, opts []Option, test func(t *testing.T, s *script, limiter *Limiter),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		limiter := newTestLimiter(t, s, opts...)
		test(t, s, limiter)
		if err := limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func mustCheck(t *testing.T, limiter *Limiter, ctx context.Context) Decision {
	t.Helper()
	d, err := limiter.Check(ctx, testRule().Of("a"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDeadline_of_the_caller_is_no_failure(t *testing.T) {
	opts := []Option{WithBreaker(1, time.Minute)}
	inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
		s.add([]any{"silent", []any{1.0, 10.0, 9.0, 0.0, 6000.0}}, "")
		began := time.Now()
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer stop()
		d := mustCheck(t, limiter, ctx)
		if d.Reason != ReasonTimeout || time.Since(began) != 30*time.Millisecond {
			t.Error(d, time.Since(began))
		}
		if _, err := limiter.Check(ctx, testRule().Of("a")); !errors.Is(err, ctx.Err()) {
			t.Error("after its deadline:", err)
		}
		if d := mustCheck(t, limiter, context.Background()); d.Source != SourceServer {
			t.Error(d)
		}
	})
}

func TestOpen_breakers_and_added_hooks_see_an_outage(t *testing.T) {
	var kinds []string
	note := func(name string) func(Event) {
		return func(event Event) { kinds = append(kinds, fmt.Sprint(name, event.Degraded)) }
	}
	opts := []Option{WithBreaker(1, time.Second), WithOnDecision(note("first"))}
	inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
		limiter.OnDecision(func(Event) { panic("a hook") })
		limiter.OnDecision(nil)
		limiter.OnDecision(note("last"))
		if open := limiter.OpenBreakers(); open != 0 {
			t.Error(open)
		}
		s.add([]any{"silent", []any{1.0, 10.0, 9.0, 0.0, 6000.0}}, "")
		mustCheck(t, limiter, context.Background())
		if open := limiter.OpenBreakers(); open != 1 {
			t.Error(open)
		}
		time.Sleep(time.Second)
		mustCheck(t, limiter, context.Background())
		if open := limiter.OpenBreakers(); open != 0 {
			t.Error(open)
		}
	})
	if want := "[firsttrue lasttrue firstfalse lastfalse]"; fmt.Sprint(kinds) != want {
		t.Error(kinds)
	}
}

func TestFailure_during_the_pause_does_not_prolong_it(t *testing.T) {
	opts := []Option{WithBreaker(1, time.Second), WithSilence(time.Second)}
	inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
		const loading = "LOADING the dataset"
		s.add([]any{
			object{"delay_ms": 100.0, "reply": object{"error": loading}},
			object{"delay_ms": 600.0, "reply": object{"error": loading}},
			[]any{1.0, 10.0, 9.0, 0.0, 6000.0},
		}, "")
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { mustCheck(t, limiter, context.Background()) })
			synctest.Wait()
		}
		time.Sleep(1099 * time.Millisecond)
		if d := mustCheck(t, limiter, context.Background()); d.Reason != ReasonCircuit {
			t.Error(d)
		}
		time.Sleep(time.Millisecond)
		if d := mustCheck(t, limiter, context.Background()); d.Source != SourceServer {
			t.Error(d)
		}
		all.Wait()
	})
}

// logged is a text that several goroutines write, as a timer of the limiter does.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logging makes the default logger write to a text, until the end of the test.
func logging(t *testing.T) *logged {
	lines, before := &logged{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(lines, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return lines
}

func TestLogs_the_decisions_without_an_answer_once_a_second(t *testing.T) {
	lines := logging(t)
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		s.add([]any{"refuse"}, "")
		for range 7 {
			mustCheck(t, limiter, context.Background())
		}
		time.Sleep(990 * time.Millisecond)
		if count := strings.Count(lines.String(), "\n"); count != 1 {
			t.Errorf("%d lines: %s", count, lines)
		}
		time.Sleep(20 * time.Millisecond)
		s.add([]any{"refuse"}, "")
		mustCheck(t, limiter, context.Background())
	})
	const text = "%d calls decided without an answer: connection"
	rest := lines.String()
	for _, count := range []int{1, 6, 1} {
		var ok bool
		_, rest, ok = strings.Cut(rest, fmt.Sprintf(text, count))
		if !ok || strings.Contains(rest, "rl:") {
			t.Fatal(count, lines)
		}
	}
}

func TestLogs_nothing_if_it_is_off(t *testing.T) {
	for isOn, count := range map[bool]int{true: 1, false: 0} {
		lines := logging(t)
		opts := []Option{WithLogErrors(isOn)}
		inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
			s.add([]any{"refuse"}, "")
			if d := mustCheck(t, limiter, context.Background()); !d.Degraded {
				t.Error(d)
			}
		})
		if got := strings.Count(lines.String(), "\n"); got != count {
			t.Errorf("%d lines if it is %t: %s", got, isOn, lines)
		}
	}
}

func TestReady_says_how_far_it_came(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		ready := func(text string) {
			t.Helper()
			var away *Unavailable
			_, err := limiter.Ready(context.Background())
			if !errors.As(err, &away) || !strings.HasPrefix(err.Error(), text) {
				t.Error(err)
			}
		}
		s.add([]any{"refuse"}, "")
		ready("not connected: connection refused")
		time.Sleep(time.Second)
		s.add([]any{"silent"}, "")
		ready("connected, logged in, no reply to RL.PEEK")
	})
}

func TestKeeps_at_most_64_connections(t *testing.T) {
	opts := []Option{WithTimeout(10 * time.Second), WithMaxInFlight(1000)}
	inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
		var all sync.WaitGroup
		for range 500 {
			s.add([]any{object{"delay_ms": 50.0, "reply": []any{1.0, 10.0, 9.0, 0.0, 6000.0}}}, "")
			all.Go(func() { mustCheck(t, limiter, context.Background()) })
		}
		all.Wait()
		if dials := s.seen().dials; dials != openMax {
			t.Errorf("%d dials", dials)
		}
	})
}

func TestLocal_denials_end_at_their_retry_time(t *testing.T) {
	rules := []*Rule{
		Must(GCRA("r", 5, 10, time.Second)), Must(TokenBucket("r", 5, 3, time.Second)),
		Must(Fixed("r", 5, time.Second)), Must(Fixed("r", 5, time.Second, Aligned())),
		Must(Sliding("r", 5, time.Second)), Must(SlidingLog("r", 5, time.Second)),
		Must(SlidingLog("r", 2000, time.Second)), Must(LeakyBucket("r", 5, 7, time.Second)),
		Must(GCRA("r", 10, 10, time.Second, WithLocalShare(0.5))),
	}
	for _, rule := range rules {
		t.Run(rule.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLocalLimiter()
				away := &Unavailable{Reason: ReasonTimeout}
				cost := max(1, rule.limit/5)
				decide := func() Decision {
					return l.decide([]*ask{{rule: rule, key: "k", cost: cost}}, away, false)[0]
				}
				var taken int64
				for step := range 200 {
					d := decide()
					if d.Allowed {
						taken += cost
						continue
					}
					if step == 0 || d.RetryAfter < time.Millisecond || d.Never {
						t.Fatal(d)
					}
					if d.RetryAfter > time.Millisecond {
						time.Sleep(d.RetryAfter - time.Millisecond)
						if early := decide(); early.Allowed {
							t.Fatalf("%v, but allowed 1 ms earlier", d)
						}
						time.Sleep(time.Millisecond)
					} else {
						time.Sleep(d.RetryAfter)
					}
					if again := decide(); !again.Allowed {
						t.Fatalf("%v, and then %v", d, again)
					}
				}
				if taken == 0 {
					t.Error("no call was allowed")
				}
			})
		})
	}
}

func TestLocal_limiter_drops_idle_keys_first(t *testing.T) {
	l := newLocalLimiter()
	rule := Must(Fixed("day", 2, time.Hour))
	decide := func(key string, cost int64) Decision {
		return l.decide([]*ask{{rule: rule, key: key, cost: cost}}, nil, false)[0]
	}
	decide("exhausted", 2)
	decide("idle", 1)
	for at := range subjectsMax {
		decide(fmt.Sprint(at), 1)
	}
	if d := decide("exhausted", 1); d.Allowed {
		t.Error("the exhausted key was dropped")
	}
	if d := decide("idle", 2); !d.Allowed || len(l.keys) > subjectsMax {
		t.Error("the idle key was kept")
	}
	for at := range subjectsMax {
		decide(fmt.Sprint("other ", at), 2)
	}
	if decide("admin", 1); !decide("admin", 1).Allowed || decide("admin", 1).Allowed {
		t.Error("exhausted keys left no room for another one")
	}
}

func TestClose_ends_with_its_context(t *testing.T) {
	opts := []Option{WithTimeout(30 * time.Second), WithPrefetch(10)}
	inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
		go func() { _, _ = limiter.Check(context.Background(), testRule().Of("a")) }()
		synctest.Wait()
		began := time.Now()
		closing := func(longest time.Duration) {
			ctx, stop := context.WithTimeout(context.Background(), longest)
			defer stop()
			err := limiter.Close(ctx)
			if time.Since(began) > longest || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(longest, time.Since(began), err)
			}
		}
		go closing(2 * time.Second)
		synctest.Wait()
		// A second one, too.
		closing(time.Second)
	})
}
