package goredis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
	"redis-throttle.invalid/go/internal/live"
)

// site is a net/http server with a limited handler, and the server of its limiter.
type site struct {
	*httptest.Server
	redis   *instance
	limiter *throttle.Limiter
}

func newSite(t *testing.T, next http.HandlerFunc, opts ...httpthrottle.Option) *site {
	t.Helper()
	redis := start(t, live.Module(t)...)
	s := &site{redis: redis, limiter: limiterOf(t, redis.rdb, patient)}
	s.Server = httptest.NewServer(handlerOf(t, s.limiter, next, opts...))
	t.Cleanup(s.Close)
	return s
}

func handlerOf(
	t *testing.T, limiter *throttle.Limiter, next http.HandlerFunc, opts ...httpthrottle.Option,
) http.Handler {
	t.Helper()
	limit, err := httpthrottle.Limit(limiter, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return limit(next)
}

// get sends a request with these fields and returns the response with its body.
func (s *site) get(t *testing.T, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(fields); at += 2 {
		r.Header.Add(fields[at], fields[at+1])
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response, string(body)
}

// isFree says whether no key of the limiter is left.
func (s *site) isFree() bool {
	return s.redis.rdb.DBSize(context.Background()).Val() == 0
}

func say(w http.ResponseWriter, r *http.Request) {
	d, ok := httpthrottle.DecisionOf(r.Context())
	_, _ = fmt.Fprint(w, d.Remaining, " ", d.Source, " ", ok)
}

func apiKey(r *http.Request) string { return r.Header.Get("X-Api-Key") }

func TestHTTP_responds_with_fields_and_problems(t *testing.T) {
	api := httpthrottle.Rule(gcra(t, 2))
	s := newSite(t, say, api)
	for _, left := range []string{"1", "0"} {
		response, body := s.get(t)
		if body != left+" server true" || response.Header.Get("Ratelimit-Policy") == "" ||
			!strings.HasPrefix(response.Header.Get("Ratelimit"), `"api";r=`+left) {
			t.Error(body, response.Header)
		}
	}
	response, body := s.get(t)
	var problem throttle.Problem
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatal(body, err)
	}
	fields := response.Header
	if response.StatusCode != 429 || problem.Status != 429 || fields.Get("Retry-After") == "" ||
		fields.Get("Cache-Control") != "no-store" || len(problem.ViolatedPolicies) != 1 ||
		fields.Get("Content-Type") != "application/problem+json" {
		t.Error(response.Status, fields, body)
	}
	head, err := s.Client().Head(s.URL)
	if err != nil || head.StatusCode != 429 || head.ContentLength != int64(len(body)) {
		t.Error(head, err)
	}
}

func TestHTTP_reports_a_rejected_command(t *testing.T) {
	var got error
	failure := func(w http.ResponseWriter, _ *http.Request, err error) {
		got = err
		w.WriteHeader(http.StatusTeapot)
	}
	never := func(http.ResponseWriter, *http.Request) { t.Error("was served") }
	api := httpthrottle.Rule(gcra(t, 1))
	s := newSite(t, never, api, httpthrottle.OnFailure(failure))
	s.redis.rdb.LPush(context.Background(), "rl:api:127.0.0.1", "another program's")
	var rejected *throttle.CommandRejected
	response, _ := s.get(t)
	if response.StatusCode != http.StatusTeapot || !errors.As(got, &rejected) {
		t.Error(response.Status, got)
	}
	s.Config.Handler = handlerOf(t, s.limiter, never, api)
	if response, body := s.get(t); response.StatusCode != 500 || strings.Contains(body, "WRONG") {
		t.Error(response.Status, body)
	}
}

func TestHTTP_fields_of_two_limiters(t *testing.T) {
	day := throttle.Must(throttle.Fixed("day", 10, time.Hour))
	redis := start(t, live.Module(t)...)
	limiter := limiterOf(t, redis.rdb, patient)
	inner := handlerOf(t, limiter, say, httpthrottle.Rule(day))
	s := &site{Server: httptest.NewServer(
		handlerOf(t, limiter, inner.ServeHTTP, httpthrottle.Rule(gcra(t, 5))))}
	t.Cleanup(s.Close)
	response, body := s.get(t)
	fields := strings.Join(response.Header.Values("Ratelimit"), ", ")
	if body != "9 server true" || !strings.HasPrefix(fields, `"api";r=4`) ||
		!strings.Contains(fields, `, "day";r=9`) {
		t.Error(body, fields)
	}
}

// counting returns a rule of five units whose failures alone count.
func counting(t *testing.T, opts ...throttle.RuleOption) *throttle.Rule {
	t.Helper()
	opts = append(opts, throttle.WithCount(throttle.CountFailures))
	return throttle.Must(throttle.SlidingLog("login", 5, time.Hour, opts...))
}

func TestHTTP_gives_back_what_does_not_count(t *testing.T) {
	isWrong := atomic.Bool{}
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Panics") != "":
			panic(http.ErrAbortHandler)
		case isWrong.Load():
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("X-Flush") != "":
			_ = http.NewResponseController(w).Flush()
		case r.Header.Get("X-Copy") != "":
			_, _ = io.Copy(w, strings.NewReader("text"))
		}
	}
	s := newSite(t, handler, httpthrottle.Rule(counting(t)))
	for _, fields := range [][]string{{}, {"X-Flush", "1"}, {"X-Copy", "1"}} {
		for range 6 {
			if response, _ := s.get(t, fields...); response.StatusCode != 200 {
				t.Error(fields, response.Status)
			}
			live.Await(t, "the units are back", s.isFree)
		}
	}
	isWrong.Store(true)
	if response, _ := s.get(t); response.StatusCode != 401 {
		t.Error(response.Status)
	}
	// net/http repeats a GET after a lost connection, so this sends a POST.
	r, _ := http.NewRequest(http.MethodPost, s.URL, strings.NewReader("x"))
	r.Header.Set("X-Panics", "1")
	if response, err := s.Client().Do(r); err == nil {
		t.Error(response.Status)
	}
	live.Await(t, "the panic counts", func() bool {
		d, err := s.limiter.Peek(context.Background(), counting(t).Of("127.0.0.1").Cost(0))
		return err == nil && d.Remaining == 3
	})
}

// framework is a writer that knows the status, as those of gin and chi do.
type framework struct {
	http.ResponseWriter
	status int
}

func (f *framework) Status() int { return f.status }

func TestHTTP_reads_the_status_from_a_framework(t *testing.T) {
	redis := start(t, live.Module(t)...)
	limiter := limiterOf(t, redis.rdb, patient)
	var counted int
	count := throttle.WithCount(throttle.CountIf(func(status int) bool {
		counted = status
		return true
	}))
	rule := throttle.Must(throttle.Fixed("login", 5, time.Hour, count))
	below := &framework{ResponseWriter: httptest.NewRecorder()}
	handler := handlerOf(t, limiter, func(http.ResponseWriter, *http.Request) {
		below.status = http.StatusUnauthorized
	}, httpthrottle.Rule(rule))
	handler.ServeHTTP(below, httptest.NewRequest(http.MethodGet, "/", nil))
	if counted != http.StatusUnauthorized {
		t.Error(counted)
	}
}

func TestHTTP_lets_a_handler_take_the_connection(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	}, httpthrottle.Rule(counting(t)))
	if response, _ := s.get(t); response.StatusCode != 204 {
		t.Error(response.Status)
	}
	live.Await(t, "the unit is back", s.isFree)
}

// leases returns rules that take a lease, alone and with another rule.
func leases(t *testing.T) map[string][]httpthrottle.Option {
	t.Helper()
	jobs := httpthrottle.Rule(throttle.Must(throttle.Lease("jobs", 1, time.Hour)))
	return map[string][]httpthrottle.Option{
		"alone": {jobs}, "with another": {jobs, httpthrottle.Rule(gcra(t, 100))},
	}
}

// areFree says whether no lease is left.
func (s *site) areFree() bool {
	return s.redis.rdb.Exists(context.Background(), "rl:jobs:127.0.0.1").Val() == 0
}

func TestHTTP_releases_leases_at_the_end(t *testing.T) {
	for name, opts := range leases(t) {
		t.Run(name, func(t *testing.T) {
			came, goOn := make(chan struct{}), make(chan struct{})
			s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Panics") != "" {
					panic(http.ErrAbortHandler)
				}
				close(came)
				<-goOn
			}, opts...)
			let := sync.OnceFunc(func() { close(goOn) })
			t.Cleanup(let)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = s.get(t)
			}()
			<-came
			if response, _ := s.get(t); response.StatusCode != 429 {
				t.Error("a second one:", response.Status)
			}
			let()
			<-ended
			live.Await(t, "the lease is back", s.areFree)
			r, _ := http.NewRequest(http.MethodPost, s.URL, strings.NewReader("x"))
			r.Header.Set("X-Panics", "1")
			_, _ = s.Client().Do(r)
			live.Await(t, "the lease is back after a panic", s.areFree)
		})
	}
}

func TestHTTP_releases_leases_of_clients_that_are_gone(t *testing.T) {
	for name, opts := range leases(t) {
		t.Run(name, func(t *testing.T) {
			came, left, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
			s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Next") != "" {
					return
				}
				close(came)
				<-r.Context().Done()
				close(left)
				<-goOn
			}, opts...)
			let := sync.OnceFunc(func() { close(goOn) })
			t.Cleanup(let)
			ctx, leave := context.WithCancel(context.Background())
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
			go func() {
				<-came
				leave()
			}()
			_, _ = s.Client().Do(r)
			<-left
			for range 20 {
				if response, _ := s.get(t, "X-Next", "1"); response.StatusCode != 429 {
					t.Fatal("while the handler runs:", response.Status)
				}
			}
			let()
			live.Await(t, "the lease is back", s.areFree)
		})
	}
}

func TestHTTP_leaves_no_lease_after_a_panic_in_a_function(t *testing.T) {
	aborts := func() { panic(http.ErrAbortHandler) }
	all := map[string]httpthrottle.Option{
		"key":  httpthrottle.Key(func(*http.Request) string { aborts(); return "" }),
		"cost": httpthrottle.CostFunc(func(*http.Request) int64 { aborts(); return 1 }),
		"tag":  httpthrottle.Tag(func(*http.Request) string { aborts(); return "" }),
	}
	opts := leases(t)["with another"]
	for name, option := range all {
		s := newSite(t, say, append(opts[:2:2], option)...)
		if response, err := s.Client().Get(s.URL); err == nil || !s.isFree() {
			t.Error(name, response, err)
		}
	}
}
