package goredis

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
	"redis-throttle.invalid/go/internal/live"
)

// reset sends the beginning of a request, and resets its connection when the handler runs.
func reset(t *testing.T, addr, text string, isServed <-chan struct{}) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = fmt.Fprint(conn, text)
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		_, _ = conn.Read(make([]byte, 1))
	}()
	select {
	case <-isServed:
	case <-refused:
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
	<-refused
}

func TestHTTP_limits_a_client_that_resets_its_requests(t *testing.T) {
	const requests, limit = 200, 20
	const head = " / HTTP/1.1\r\nHost: a\r\n"
	for name, text := range map[string]string{
		"waiting for the response": "GET" + head + "\r\n",
		// net/http waits for the rest of a shorter body before it responds.
		"in a body": "POST" + head + "Content-Length: 1000000\r\n\r\nhalf",
	} {
		t.Run(name, func(t *testing.T) {
			count := throttle.CountIf(func(status int) bool { return status == http.StatusOK })
			rule := throttle.Must(
				throttle.Fixed("gone", limit, time.Hour, throttle.WithCount(count)))
			var runs atomic.Int64
			came := make(chan struct{})
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				came <- struct{}{}
				if _, err := io.ReadAll(r.Body); err == nil {
					<-r.Context().Done()
				}
				w.WriteHeader(http.StatusBadRequest)
			}, httpthrottle.Rule(rule))
			for range requests {
				reset(t, s.Listener.Addr().String(), text, came)
			}
			if served := runs.Load(); served != limit {
				t.Error(served, "of", requests, "were served")
			}
		})
	}
}

func TestHTTP_runs_no_more_than_the_leases_of_a_client_that_resets(t *testing.T) {
	const requests, limit = 50, 2
	rule := throttle.Must(throttle.Lease("jobs", limit, time.Hour))
	var running atomic.Int64
	came, goOn := make(chan struct{}), make(chan struct{})
	left := make(chan struct{}, requests)
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		came <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
		<-goOn
	}, httpthrottle.Rule(rule))
	let := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(let)
	for sent := range requests {
		reset(t, s.Listener.Addr().String(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n", came)
		if sent < limit {
			<-left
		}
	}
	// None has returned.
	if together := running.Load(); together != limit {
		t.Error(together, "handlers run at a time")
	}
	let()
	live.Await(t, "the leases are back", func() bool { return running.Load() == 0 && s.areFree() })
}

func TestHTTP_counts_a_request_whose_body_its_client_cuts(t *testing.T) {
	for how, head := range map[string]string{
		"length": "Content-Length: 100\r\n\r\n0123456789",
		"chunks": "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n",
	} {
		for what, leave := range map[string]func(*net.TCPConn){
			"closes":      func(c *net.TCPConn) { _ = c.Close() },
			"half-closes": func(c *net.TCPConn) { _ = c.CloseWrite() },
			"resets":      func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		} {
			t.Run(how+" "+what, func(t *testing.T) {
				var judged atomic.Int64
				ok := throttle.CountIf(func(status int) bool {
					judged.Add(1)
					return status == http.StatusOK
				})
				rule := throttle.Must(throttle.Fixed("cut", 5, time.Hour, throttle.WithCount(ok)))
				came, ended := make(chan struct{}), make(chan struct{})
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					close(came)
					if _, err := io.ReadAll(r.Body); err != nil {
						w.WriteHeader(http.StatusBadRequest)
					}
					close(ended)
				}, httpthrottle.Rule(rule))
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\n"+head)
				<-came
				leave(conn.(*net.TCPConn))
				<-ended
				d, err := s.limiter.Peek(t.Context(), rule.Of("127.0.0.1").Cost(0))
				if err != nil || d.Remaining != 4 || judged.Load() != 0 {
					t.Error(d, err, judged.Load(), "times judged")
				}
			})
		}
	}
}
