package throttletest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/throttletest"
)

func limiterOf(
	t *testing.T, server *throttletest.Server, opts ...throttle.Option,
) *throttle.Limiter {
	t.Helper()
	limiter, err := throttle.New(server, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close(context.Background()) })
	return limiter
}

var once = throttle.Must(throttle.GCRA("once", 1, 1, time.Minute))

func TestFails_with_the_error_of_the_test(t *testing.T) {
	server := throttletest.NewServer()
	limiter := limiterOf(t, server)
	server.Fail(throttle.ServerError("OOM command not allowed"))
	d, err := limiter.Check(t.Context(), once.Of("a"))
	if err != nil || d.Source != throttle.SourceError || d.Reason != throttle.ReasonServer {
		t.Error(d, err)
	}
	server.Fail(errors.New("cable cut"))
	d, err = limiter.Check(t.Context(), once.Of("a"))
	if err != nil || d.Reason != throttle.ReasonConnection {
		t.Error(d, err)
	}
	server.Fail(throttle.ServerError("WRONGTYPE a hash"))
	var rejected *throttle.CommandRejected
	if d, err = limiter.Check(t.Context(), once.Of("a")); !errors.As(err, &rejected) {
		t.Error(d, err)
	}
	server.Recover()
	d, err = limiter.Check(t.Context(), once.Of("a"))
	if err != nil || d.Source != throttle.SourceServer || !d.Allowed {
		t.Errorf("a failed call ran: %v, %v", d, err)
	}
	want := "RL.GCRA rl:once:a 1 1 60"
	if calls := server.Calls(); len(calls) != 4 || strings.Join(calls[0], " ") != want {
		t.Error(calls)
	}
}

func TestRuns_calls_while_it_hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := throttletest.NewServer()
		limiter := limiterOf(t, server, throttle.WithTimeout(time.Second))
		server.Hang()
		d, err := limiter.Check(t.Context(), once.Of("a"))
		if err != nil || d.Reason != throttle.ReasonTimeout {
			t.Error(d, err)
		}
		time.AfterFunc(time.Second/2, server.Recover)
		d, err = limiter.Check(t.Context(), once.Of("a"))
		if err != nil || d.Source != throttle.SourceServer || d.Allowed {
			t.Error(d, err)
		}
	})
}

func TestFollows_the_clock_of_a_bubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := throttletest.NewServer()
		server.Follow(time.Now)
		limiter := limiterOf(t, server)
		began := time.Now()
		for range 2 {
			if d, err := limiter.Wait(t.Context(), once.Of("a"), time.Hour); !d.Allowed {
				t.Error(d, err)
			}
		}
		if waited := time.Since(began); waited != time.Minute {
			t.Error(waited)
		}
		server.Advance(time.Minute)
		if d, err := limiter.Check(t.Context(), once.Of("a")); !d.Allowed {
			t.Error(d, err)
		}
	})
}

func TestTakes_scripted_replies_for_what_it_does_not_compute(t *testing.T) {
	server := throttletest.NewServer()
	limiter := limiterOf(t, server)
	jobs := throttle.Must(throttle.Lease("jobs", 3, time.Minute))
	day := throttle.Must(throttle.Quota("day", 9, throttle.Day))
	server.Script([]any{1, 3, 2, 0, 60_000}, 1, throttle.ServerError("WRONGTYPE a hash"))
	job, err := limiter.Lease(t.Context(), jobs.Of("a"))
	if err != nil || job.Decision().Remaining != 2 {
		t.Fatal(err)
	}
	if d, err := limiter.Check(t.Context(), once.Of("a")); err != nil || !d.Allowed {
		t.Error("a command that is computed:", d, err)
	}
	job.Release(t.Context())
	for _, text := range []string{"WRONGTYPE", "RL.QUOTA: queue its reply with Script"} {
		var rejected *throttle.CommandRejected
		_, err = limiter.Check(t.Context(), day.Of("a"))
		if !errors.As(err, &rejected) || !strings.Contains(err.Error(), text) {
			t.Error(text, err)
		}
	}
}

func TestRefuses_words_that_no_limiter_sends(t *testing.T) {
	server, chance := throttletest.NewServer(), rand.New(rand.NewPCG(1, 0))
	conn, err := server.Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields("RL.ALL RL.PEEK RL.GCRA RL.SLIDING RL.SLIDINGLOG RL.RESERVE RL.COMMIT " +
		"RL.CHARGE RL.REFUND RL.LEASE RL.RENEW RL.BLOCK RL.QUOTA RL.BACKOFF RL.USE RL.X GET " +
		"k GCRA FIXED LEASE QUOTA BACKOFF SLIDING SLIDINGLOG SLOTS COST LEAVE USE DEFAULT " +
		"RESERVE 0 1 7 -1 1000000000000 9223372036854775807 60 1ms 366d 31622400 100% day PARTIAL")
	for range 200_000 {
		words := make([]string, 1+chance.IntN(9))
		for at := range words {
			words[at] = all[chance.IntN(len(all))]
		}
		if chance.IntN(4) == 0 {
			words = []string{"RL.ALL", "k", strings.Join(words, " ")}
		}
		err := conn.Send(words)
		if err == nil {
			_, err = conn.Receive()
		}
		var said throttle.ServerError
		if err != nil && !errors.As(err, &said) {
			t.Fatal(words, err)
		}
	}
}
