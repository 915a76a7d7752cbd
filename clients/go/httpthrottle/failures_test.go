package httpthrottle_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
	"redis-throttle.invalid/go/throttletest"
)

// logging returns the log until the end of the test.
func logging(t *testing.T) *bytes.Buffer {
	t.Helper()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

func TestResponds_400_to_a_cost_that_no_call_can_have(t *testing.T) {
	log := logging(t)
	never := func(http.ResponseWriter, *http.Request) { t.Error("was served") }
	failure := func(http.ResponseWriter, *http.Request, error) { t.Error("is a failure") }
	visitors := httpthrottle.Anonymous(gcra(t, "visitors"))
	noSubject := httpthrottle.Key(func(*http.Request) string { return "" })
	for _, units := range []int64{-1, 1e12 + 1} {
		cost := httpthrottle.CostFunc(func(*http.Request) int64 { return units })
		own := httpthrottle.Rule(gcra(t, "api"), cost)
		api := httpthrottle.Rule(gcra(t, "api"))
		for what, opts := range map[string][]httpthrottle.Option{
			"all rules": {api, cost}, "one rule": {own},
			"anonymous": {api, noSubject, visitors, cost},
		} {
			opts = append(opts, httpthrottle.OnFailure(failure))
			w := serve(limited(t, without(t), never, opts...), get())
			var body throttle.Problem
			err := json.Unmarshal(w.Body.Bytes(), &body)
			if err != nil || w.Code != 400 || body.Detail != throttle.InvalidCost().Detail ||
				w.Header().Get("Cache-Control") != "no-store" {
				t.Error(what, units, w.Code, w.Body, err)
			}
		}
	}
	if lines := strings.Count(log.String(), "a cost function"); lines != 2 {
		t.Error(lines, log)
	}
}

func TestLogs_the_failures_of_each_function_once(t *testing.T) {
	log := logging(t)
	limiter := limiterOn(t, throttletest.NewServer())
	count := throttle.CountIf(func(int) bool { panic("count") })
	for _, name := range []string{"one", "two"} {
		rule := throttle.Must(throttle.Fixed(name, 9, time.Hour, throttle.WithCount(count)))
		counting := limited(t, limiter, served, httpthrottle.Rule(rule))
		keyed := limited(t, limiter, served, httpthrottle.Rule(rule),
			httpthrottle.Key(func(r *http.Request) string { return r.Header["X-Api-Key"][0] }))
		for range 3 {
			if w := serve(counting, get()); w.Code != 200 {
				t.Error(name, w.Code)
			}
			if w := serve(keyed, get()); w.Code != 400 {
				t.Error(name, w.Code)
			}
		}
	}
	for _, text := range []string{"a count panicked", "a key function panicked"} {
		if lines := strings.Count(log.String(), text); lines != 2 {
			t.Errorf("%q: %d lines in %s", text, lines, log)
		}
	}
}
