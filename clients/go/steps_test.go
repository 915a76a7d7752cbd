package throttle

import (
	"context"
	"errors"
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

func TestReady_says_how_far_it_came(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		ready := func(text string) {
			t.Helper()
			var unavailable *Unavailable
			_, err := limiter.Ready(context.Background())
			if !errors.As(err, &unavailable) || !strings.HasPrefix(err.Error(), text) {
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

func TestReady_without_a_reply_shortens_no_patience(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		s.add([]any{"silent"}, "")
		if _, err := limiter.Ready(context.Background()); err == nil {
			t.Error("it is ready")
		}
		s.add([]any{object{"delay_ms": 80.0, "reply": allowed}}, "rl:api:b")
		s.add([]any{object{"delay_ms": 150.0, "reply": allowed}}, "rl:api:a")
		var other sync.WaitGroup
		other.Go(func() { _, _ = limiter.Check(context.Background(), testRule().Of("b")) })
		if d := mustCheck(t, limiter, context.Background()); d.Source != SourceServer {
			t.Error(d)
		}
		other.Wait()
	})
}

func TestDeadline_of_the_caller_keeps_the_limit_in_this_process(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		s.replyAlways(object{"delay_ms": 20.0, "reply": allowed})
		count := 0
		for range 100 {
			ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
			if d := mustCheck(t, limiter, ctx); d.Allowed {
				count++
			}
			stop()
		}
		if count > 11 || count < 10 {
			t.Error(count, "calls were allowed under a limit of 10")
		}
	})
}
