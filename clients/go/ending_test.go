package throttle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClose_refunds_many_keys_within_one_timeout(t *testing.T) {
	for name, reply := range map[string]any{
		"slow": object{"delay_ms": 90.0, "reply": allowed}, "silent": "silent",
	} {
		t.Run(name, func(t *testing.T) {
			opts := []Option{WithBreaker(1_000_000, time.Second), WithPrefetch(2)}
			inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
				const keys = 500
				s.replyAlways([]any{2.0, 10.0, 8.0, 0.0, 6000.0})
				rule := Must(Fixed("hot", 10, time.Hour))
				for at := range keys {
					_, _ = limiter.Check(context.Background(), rule.Of(fmt.Sprint(at)))
				}
				before := len(s.seen().sent)
				s.replyAlways(reply)
				began := time.Now()
				if err := limiter.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > time.Second {
					t.Error("Close took", took)
				}
				if sent := len(s.seen().sent) - before; name == "slow" && sent != keys {
					t.Error(sent, "refunds")
				}
			})
		})
	}
}

func TestClose_releases_many_leases_within_one_timeout(t *testing.T) {
	for name, unsettled := range map[string]int64{"slow": 0, "silent": 500} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
				s.replyAlways(allowed)
				rule := Must(Lease("jobs", 1000, time.Hour))
				for range 500 {
					if _, err := limiter.Lease(context.Background(), rule.Of("a")); err != nil {
						t.Fatal(err)
					}
				}
				s.replyAlways("silent")
				if name == "slow" {
					s.replyAlways(object{"delay_ms": 50.0, "reply": 1.0})
				}
				began := time.Now()
				if err := limiter.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > time.Second {
					t.Error("Close took", took)
				}
				if c := limiter.Counters(); c.Unsettled != unsettled {
					t.Errorf("%+v", c)
				}
			})
		})
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
