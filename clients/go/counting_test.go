package throttle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// local returns rules of five units that this process can enforce.
func local() map[string]*Rule {
	return map[string]*Rule{
		"gcra":    Must(GCRA("r", 5, 5, time.Hour, WithOnError(Local))),
		"fixed":   Must(Fixed("r", 5, time.Hour, WithOnError(Local))),
		"aligned": Must(Fixed("r", 5, time.Hour, WithOnError(Local), Aligned())),
		"sliding": Must(Sliding("r", 5, time.Hour, WithOnError(Local))),
		"log":     Must(SlidingLog("r", 5, time.Hour, WithOnError(Local))),
	}
}

// spendAll takes units one by one until a call is denied, and returns their number.
func spendAll(t *testing.T, limiter *Limiter, rule *Rule) (units int, last Decision) {
	t.Helper()
	for {
		d, err := limiter.Check(context.Background(), rule.Of("a"))
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			return units, last
		}
		last = d
		units++
	}
}

func TestGives_local_units_back(t *testing.T) {
	for name, rule := range local() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
				s.add([]any{"refuse"}, "")
				units, last := spendAll(t, limiter, rule)
				if units != 5 {
					t.Fatalf("%d units", units)
				}
				for range 2 {
					if err := limiter.GiveBack(rule.Of("a"), last); err != nil {
						t.Fatal(err)
					}
				}
				if units, _ := spendAll(t, limiter, rule); units != 2 {
					t.Errorf("%d units after 2 are back", units)
				}
				last.Granted = 5
				_ = limiter.GiveBack(rule.Of("a"), last)
				_ = limiter.GiveBack(rule.Of("a"), last)
				if units, _ := spendAll(t, limiter, rule); units != 5 {
					t.Errorf("%d units after all are back", units)
				}
			})
		})
	}
}

func TestGives_permits_back_here_and_units_to_the_server(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		ctx := context.Background()
		rule := Must(Fixed("r", 10, time.Hour, WithPrefetch(2)))
		s.add([]any{[]any{2.0, 10.0, 8.0, 0.0, 6000.0}, []any{1.0, 10.0, 9.0, 0.0, 6000.0}}, "")
		first, err := limiter.Check(ctx, rule.Of("a"))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			permit, err := limiter.Check(ctx, rule.Of("a"))
			if err != nil || permit.Source != SourceLocal {
				t.Fatal(permit, err)
			}
			if err := limiter.GiveBack(rule.Of("a"), permit); err != nil {
				t.Fatal(err)
			}
		}
		// The permit of the first caller is the server's.
		if err := limiter.GiveBack(rule.Of("a"), first); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		sent := s.seen().sent
		if len(sent) != 2 || sent[1] != "RL.REFUND rl:r:a FIXED 10 3600" {
			t.Error(sent)
		}
	})
}

func TestGives_nothing_back_that_was_not_taken(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		rule := testRule()
		for name, d := range map[string]Decision{
			"no final reply": {Allowed: true, WouldAllow: true, Granted: 1, Source: SourceError},
			"a denial":       {Source: SourceServer},
			"shadow":         {Allowed: true, Granted: 1, Source: SourceServer},
		} {
			if err := limiter.GiveBack(rule.Of("a"), d); err != nil {
				t.Error(name, err)
			}
		}
		synctest.Wait()
		if sent := s.seen().sent; len(sent) != 0 {
			t.Error(sent)
		}
		var wrong *InvalidArgument
		if err := limiter.GiveBack(Item{}, Decision{}); !errors.As(err, &wrong) {
			t.Error(err)
		}
		_ = limiter.Close(context.Background())
		if err := limiter.GiveBack(rule.Of("a"), Decision{}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestClose_ends_what_gives_back(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		s.add([]any{[]any{1.0, 10.0, 9.0, 0.0, 6000.0}, "silent"}, "")
		d := mustCheck(t, limiter, context.Background())
		if err := limiter.GiveBack(testRule().Of("a"), d); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if sent := s.seen().sent; len(sent) != 2 {
			t.Error(sent)
		}
		began := time.Now()
		_ = limiter.Close(context.Background())
		// The refund was sent, so Close waits until the server counts as silent.
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Error("it waited for", took)
		}
	})
}

func TestCanDecide_finds_rules_without_a_local_limit(t *testing.T) {
	inBubble(t, []Option{WithOnError(Local)}, func(t *testing.T, _ *script, limiter *Limiter) {
		var wrong *InvalidArgument
		for _, rule := range []*Rule{nil, {}, Must(Lease("l", 1, time.Second))} {
			if err := limiter.CanDecide(rule); !errors.As(err, &wrong) {
				t.Error(rule, err)
			}
		}
		if err := limiter.CanDecide(testRule()); err != nil {
			t.Error(err)
		}
	})
}

func TestLocal_shares_far_below_a_unit_allow_one(t *testing.T) {
	const year = 366 * 24 * time.Hour
	for _, share := range []float64{0.003, 1e-300} {
		small := []RuleOption{WithOnError(Local), WithLocalShare(share)}
		for _, rule := range []*Rule{
			Must(GCRA("gcra", 1, 1, year, small...)), Must(Fixed("fixed", 1, year, small...)),
			Must(Fixed("aligned", 1, year, append(small, Aligned())...)),
			Must(Sliding("sliding", 1, year, small...)), Must(SlidingLog("log", 1, year, small...)),
		} {
			now := time.Now().UnixNano()
			first := rule.local.Decide(nil, now, 1)
			second := rule.local.Decide(first.State, now, 1)
			if !first.Allowed || second.Allowed || second.RetryAfter < 24*time.Hour {
				t.Error(share, rule, first.Allowed, second.Allowed, second.RetryAfter)
			}
		}
	}
}
