package goredis

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
	"redis-throttle.invalid/go/internal/live"
)

// counted has the decisions of many calls.
type counted struct{ allowed, degraded atomic.Int64 }

// callAtOnce checks items in as many goroutines, which begin together.
func (c *counted) callAtOnce(
	t *testing.T, limiter *throttle.Limiter, calls int, itemOf func(at int) throttle.Item,
) {
	t.Helper()
	begin := make(chan struct{})
	var all sync.WaitGroup
	for at := range calls {
		all.Go(func() {
			<-begin
			d, err := limiter.Check(context.Background(), itemOf(at))
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				c.allowed.Add(1)
			}
			if d.Degraded {
				c.degraded.Add(1)
			}
		})
	}
	close(begin)
	all.Wait()
}

func TestHerd_of_ten_thousand_calls_keeps_the_limit(t *testing.T) {
	const calls, limit = 10_000, 1000
	server := start(t, live.Module(t)...)
	for name, rule := range map[string]*throttle.Rule{
		"fixed": throttle.Must(throttle.Fixed("fixed", limit, time.Hour)),
		"gcra":  throttle.Must(throttle.GCRA("gcra", limit, 6000, time.Minute)),
		"keys":  throttle.Must(throttle.Fixed("keys", limit/100, time.Hour)),
	} {
		for _, state := range []string{"cold", "warm"} {
			t.Run(name+" "+state, func(t *testing.T) {
				// A busy machine needs longer for all than the defaults.
				limiter := limiterOf(t, server.rdb, throttle.WithTimeout(20*time.Second),
					throttle.WithSilence(5*time.Second))
				item := func(int) throttle.Item { return rule.Of(state) }
				if name == "keys" {
					item = func(at int) throttle.Item {
						return rule.Of(state + strconv.Itoa(at%100))
					}
				}
				if state == "warm" {
					check(t, limiter, rule.Of("another"))
				}
				began := time.Now()
				var herd counted
				herd.callAtOnce(t, limiter, calls, item)
				most := int64(limit + 10)
				if name == "gcra" {
					most += int64(time.Since(began)*6000/time.Minute) + 1
				}
				allowed, degraded := herd.allowed.Load(), herd.degraded.Load()
				if allowed < limit || allowed > most || degraded > calls/100 {
					t.Errorf("%d allowed, at most %d; %d degraded", allowed, most, degraded)
				}
			})
		}
	}
}

// startStallable starts a server that DEBUG SLEEP stalls.
func startStallable(t *testing.T) *instance {
	t.Helper()
	return start(t, append(live.Module(t), "--enable-debug-command", "local")...)
}

func TestStall_shorter_than_the_silence_ends_no_call(t *testing.T) {
	server := startStallable(t)
	limiter := limiterOf(t, server.rdb,
		throttle.WithSilence(2*time.Second), throttle.WithTimeout(time.Minute))
	rule := throttle.Must(throttle.Fixed("stall", 1_000_000, time.Hour))
	check(t, limiter, rule.Of("a"))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 256 {
		all.Go(func() {
			for ctx.Err() == nil {
				check(t, limiter, rule.Of("a"))
			}
		})
	}
	for range 6 {
		if err := server.rdb.Do(t.Context(), "DEBUG", "SLEEP", "0.2").Err(); err != nil {
			t.Error(err)
		}
		// Calls in line are served between two stalls.
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	all.Wait()
	if c := limiter.Counters(); c.Degraded > 0 {
		t.Errorf("%+v", c)
	}
}

func TestStall_allows_no_call_of_a_key_that_was_denied(t *testing.T) {
	server := startStallable(t)
	limiter := limiterOf(t, server.rdb)
	rule := throttle.Must(throttle.Fixed("denied", 1, time.Hour))
	check(t, limiter, rule.Of("a"))
	if check(t, limiter, rule.Of("a")).Allowed {
		t.Fatal("the limit is not reached")
	}
	stalled := make(chan error, 1)
	go func() { stalled <- server.rdb.Do(t.Context(), "DEBUG", "SLEEP", "1").Err() }()
	var calls counted
	for isOver := false; !isOver; {
		calls.callAtOnce(t, limiter, 32, func(int) throttle.Item { return rule.Of("a") })
		select {
		case err := <-stalled:
			if err != nil {
				t.Fatal(err)
			}
			isOver = true
		default:
		}
	}
	if allowed := calls.allowed.Load(); allowed > 0 || calls.degraded.Load() == 0 {
		t.Errorf("%d allowed, %d degraded", allowed, calls.degraded.Load())
	}
}

func TestPaused_writes_end_calls_and_open_no_breaker(t *testing.T) {
	server := start(t, live.Module(t)...)
	limiter := limiterOf(t, server.rdb)
	rule := throttle.Must(throttle.Fixed("paused", 1000, time.Hour))
	ctx := t.Context()
	check(t, limiter, rule.Of("a"))
	if err := server.rdb.Do(ctx, "CLIENT", "PAUSE", "60000", "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	peeking, stop := context.WithCancel(ctx)
	var peeks sync.WaitGroup
	peeks.Go(func() {
		for peeking.Err() == nil {
			if d, err := limiter.Peek(ctx, rule.Of("b")); err != nil || d.Degraded {
				t.Error(d, err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	for range 4 {
		d := check(t, limiter, rule.Of("a"))
		isOwn := d.Reason == throttle.ReasonTimeout || d.Reason == throttle.ReasonOverloaded
		if !d.Degraded || !isOwn {
			t.Error(d)
		}
	}
	stop()
	peeks.Wait()
	if open := limiter.OpenBreakers(); open != 0 {
		t.Error(open, "breakers are open")
	}
	server.rdb.Do(ctx, "CLIENT", "UNPAUSE")
	if d := check(t, limiter, rule.Of("a")); d.Source != throttle.SourceServer {
		t.Error(d)
	}
}

var processID = regexp.MustCompile(`process_id:(\d+)`)

func TestHeals_after_the_server_was_stopped(t *testing.T) {
	server := start(t, live.Module(t)...)
	pid := processID.FindStringSubmatch(server.rdb.Info(t.Context(), "server").Val())[1]
	limiter := limiterOf(t, server.rdb)
	rule := throttle.Must(throttle.Fixed("stopped", 1_000_000, time.Hour))
	check(t, limiter, rule.Of("a"))
	signal := func(name string) {
		if err := exec.Command("kill", "-"+name, pid).Run(); err != nil {
			t.Fatal(err)
		}
	}
	signal("STOP")
	defer signal("CONT")
	for range 5 {
		if d := check(t, limiter, rule.Of("a")); d.Source != throttle.SourceError {
			t.Error(d)
		}
	}
	signal("CONT")
	live.Await(t, "the server decides again", func() bool {
		return check(t, limiter, rule.Of("a")).Source == throttle.SourceServer
	})
}

// abort sends requests and resets their connections, until the context ends.
func abort(ctx context.Context, addr string) (requests int) {
	for ctx.Err() == nil && requests < 5000 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			continue
		}
		requests++
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: bad%d\r\n\r\n", requests)
		time.Sleep(time.Millisecond)
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	return requests
}

func TestHTTP_aborted_requests_do_not_open_the_limits_of_others(t *testing.T) {
	const requests, limit = 60, 40
	server := start(t, live.Module(t)...)
	slow := redis.NewClient(&redis.Options{
		Addr: live.Delay(t, server.addr, 20*time.Millisecond),
	})
	defer slow.Close()
	limiter := limiterOf(t, slow, throttle.WithSilence(400*time.Millisecond))
	rule := throttle.Must(throttle.Fixed("storm", limit, time.Hour))
	handler := handlerOf(t, limiter, func(w http.ResponseWriter, r *http.Request) {
		d, _ := httpthrottle.DecisionOf(r.Context())
		_, _ = fmt.Fprint(w, d.Degraded)
	}, httpthrottle.Rule(rule), httpthrottle.Key(apiKey))
	s := httptest.NewServer(handler)
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	var aborted atomic.Int64
	for range 16 {
		storm.Go(func() { aborted.Add(int64(abort(ctx, s.Listener.Addr().String()))) })
	}
	served := 0
	for range requests {
		r, _ := http.NewRequest(http.MethodGet, s.URL, nil)
		r.Header.Set("X-Api-Key", "good")
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case response.StatusCode == http.StatusOK && string(body) == "false":
			served++
		case response.StatusCode != http.StatusTooManyRequests:
			t.Error(response.Status, string(body))
		}
	}
	stop()
	storm.Wait()
	if served != limit || limiter.OpenBreakers() != 0 || aborted.Load() < 100 {
		t.Errorf("%d served, %d aborted, %+v", served, aborted.Load(), limiter.Counters())
	}
}
