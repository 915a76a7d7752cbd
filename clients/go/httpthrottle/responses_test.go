package httpthrottle_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
	"redis-throttle.invalid/go/internal/live"
)

// ruleCase is a rule of cases.json, of the kinds that its responses have.
type ruleCase struct {
	Kind, Name, Period, Window, TTL, Count string
	Burst, Rate, Limit                     int64
	OnError                                throttle.OnError `json:"on_error"`
}

func (c ruleCase) rule(t *testing.T) *throttle.Rule {
	t.Helper()
	duration := func(text string) time.Duration {
		if days, isDays := strings.CutSuffix(text, "d"); isDays && days == "1" {
			text = "24h"
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	var opts []throttle.RuleOption
	if c.OnError != "" {
		opts = append(opts, throttle.WithOnError(c.OnError))
	}
	if c.Count == "failures" {
		opts = append(opts, throttle.WithCount(throttle.CountFailures))
	}
	switch c.Kind {
	case "gcra":
		period := duration(c.Period)
		return throttle.Must(throttle.GCRA(c.Name, c.Burst, c.Rate, period, opts...))
	case "fixed":
		return throttle.Must(throttle.Fixed(c.Name, c.Limit, duration(c.Window), opts...))
	case "lease":
		return throttle.Must(throttle.Lease(c.Name, c.Limit, duration(c.TTL), opts...))
	case "policy":
		return throttle.Must(throttle.Policy(c.Name, opts...))
	}
	t.Fatal("a rule of the kind " + c.Kind)
	return nil
}

// seen is what the application saw of a request.
type seen struct {
	Source    *string
	Remaining *int64
	Degraded  *string
}

// responseCase is a request to a limited application, and the response.
type responseCase struct {
	Name  string
	Input struct {
		Limits []struct {
			Rule ruleCase
			Key  []string
			Cost int64
		}
		Key            []string
		Headers        []throttle.HeaderStyle
		Cost           int64
		Skip           bool
		Anonymous      *ruleCase
		Tag            string
		TrustedProxies []string `json:"trusted_proxies"`
		DegradedHeader string   `json:"degraded_header"`
		OnDenied       int      `json:"on_denied"`
		Request        map[string]string
		Responds       int
		Server         any
		Servers        []any
	}
	Expect struct {
		Sent        []string
		Application *seen
		Status      int
		Fields      map[string]string
		Body        map[string]any
	}
}

// options returns the options of the middleware.
func (c *responseCase) options(t *testing.T) []httpthrottle.Option {
	in := &c.Input
	var opts []httpthrottle.Option
	add := func(isGiven bool, one httpthrottle.Option) {
		if isGiven {
			opts = append(opts, one)
		}
	}
	for _, limit := range in.Limits {
		var own []httpthrottle.RuleOption
		if limit.Key != nil {
			own = append(own, httpthrottle.KeyOf(limit.Key...))
		}
		if limit.Cost > 0 {
			own = append(own, httpthrottle.Cost(limit.Cost))
		}
		add(true, httpthrottle.Rule(limit.Rule.rule(t), own...))
	}
	if in.Anonymous != nil {
		add(true, httpthrottle.Anonymous(in.Anonymous.rule(t)))
	}
	add(in.Key != nil, httpthrottle.KeyOf(in.Key...))
	add(in.Headers != nil, httpthrottle.Headers(in.Headers...))
	add(in.Cost > 0, httpthrottle.Cost(in.Cost))
	add(in.Skip, httpthrottle.Skip(func(*http.Request) bool { return true }))
	add(in.Tag != "", httpthrottle.Tag(func(*http.Request) string { return in.Tag }))
	add(in.TrustedProxies != nil, httpthrottle.TrustedProxies(in.TrustedProxies...))
	add(in.DegradedHeader != "", httpthrottle.DegradedHeader(in.DegradedHeader))
	add(in.OnDenied > 0, httpthrottle.OnDenied(
		func(w http.ResponseWriter, _ *http.Request, _ throttle.Decision) {
			w.WriteHeader(in.OnDenied)
		}))
	return opts
}

// isOfLimit returns true for the names of the fields that a middleware sends.
func isOfLimit(name string) bool {
	return strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit") ||
		name == "Retry-After" || name == "Cache-Control"
}

func (c *responseCase) run(t *testing.T) {
	server := live.NewScript(c.Input.Servers...)
	if c.Input.Server != nil {
		server = live.NewScript(c.Input.Server)
	}
	limiter := limiterOn(t, server)
	var found *seen
	application := func(w http.ResponseWriter, r *http.Request) {
		found = &seen{}
		if d, ok := httpthrottle.DecisionOf(r.Context()); ok {
			source := string(d.Source)
			found.Source, found.Remaining = &source, &d.Remaining
		}
		if values := r.Header.Values(c.Input.DegradedHeader); len(values) > 0 {
			found.Degraded = &values[0]
		}
		if c.Input.Responds > 0 {
			w.WriteHeader(c.Input.Responds)
		}
	}
	r := get()
	r.RemoteAddr = "192.0.2.7:4711"
	for name, value := range c.Input.Request {
		r.Header.Set(name, value)
	}
	w := serve(limited(t, limiter, application, c.options(t)...), r)
	live.Await(t, "what is sent in the background", func() bool {
		return len(server.Sent()) >= len(c.Expect.Sent)
	})
	// Nothing is sent after the limiter has closed.
	if err := limiter.Close(t.Context()); err != nil {
		t.Error(err)
	}
	c.compare(t, w, found, server.Sent())
}

func (c *responseCase) compare(
	t *testing.T, w *httptest.ResponseRecorder, found *seen, sent []string,
) {
	if !reflect.DeepEqual(found, c.Expect.Application) {
		t.Errorf("the application saw %+v", found)
	}
	isSame := len(sent) == len(c.Expect.Sent)
	for at := range sent {
		isSame = isSame && strings.HasPrefix(sent[at], c.Expect.Sent[at])
	}
	if !isSame {
		t.Errorf("sent %q", sent)
	}
	if w.Code != c.Expect.Status {
		t.Errorf("the status %d", w.Code)
	}
	if c.Expect.Body != nil {
		var body map[string]any
		err := json.Unmarshal(w.Body.Bytes(), &body)
		kind := w.Header().Get("Content-Type")
		if err != nil || !reflect.DeepEqual(body, c.Expect.Body) ||
			kind != "application/problem+json" {
			t.Errorf("%s %s, %v", kind, w.Body, err)
		}
	}
	if c.Expect.Fields == nil {
		return
	}
	wanted, fields := http.Header{}, http.Header{}
	for name, value := range c.Expect.Fields {
		wanted.Set(name, value)
	}
	for name, values := range w.Header() {
		if isOfLimit(name) {
			fields[name] = values
		}
	}
	if !reflect.DeepEqual(fields, wanted) {
		t.Errorf("the fields %q\nwant %q", fields, wanted)
	}
}

func TestResponses_follow_the_shared_cases(t *testing.T) {
	text, err := os.ReadFile("../../cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Responses []responseCase }
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all.Responses {
		t.Run(one.Name, one.run)
	}
	if len(all.Responses) < 30 {
		t.Errorf("%d cases", len(all.Responses))
	}
}
