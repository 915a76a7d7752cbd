package httpthrottle_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
)

// unreachable is a server that cannot be reached.
type unreachable struct{}

func (unreachable) Dial(context.Context, string) (throttle.Conn, error) {
	return nil, errors.New("connection refused")
}

// without returns a limiter whose server cannot be reached.
func without(t *testing.T, opts ...throttle.Option) *throttle.Limiter {
	t.Helper()
	limiter, err := throttle.New(unreachable{}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close(context.Background()) })
	return limiter
}

func gcra(t *testing.T, name string, opts ...throttle.RuleOption) *throttle.Rule {
	t.Helper()
	return throttle.Must(throttle.GCRA(name, 10, 10, time.Minute, opts...))
}

// limited returns a handler with a middleware.
func limited(
	t *testing.T, limiter *throttle.Limiter, next http.HandlerFunc, opts ...httpthrottle.Option,
) http.Handler {
	t.Helper()
	limit, err := httpthrottle.Limit(limiter, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return limit(next)
}

func served(http.ResponseWriter, *http.Request) {}

func serve(handler http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

func TestLimit_rejects_invalid_options(t *testing.T) {
	api := httpthrottle.Rule(gcra(t, "api"))
	var many []httpthrottle.Option
	for range 17 {
		none := func(*http.Request) *throttle.Rule { return nil }
		many = append(many, httpthrottle.RuleFunc(none))
	}
	byRequest := many[:1]
	all := map[string][]httpthrottle.Option{
		"rules":          {},
		"rules ":         many,
		"rules  ":        {api, api},
		"rule":           {httpthrottle.Rule(nil)},
		"rule ":          {httpthrottle.Rule(&throttle.Rule{})},
		"rule  ":         {httpthrottle.RuleFunc(nil)},
		"rule   ":        {api, httpthrottle.Anonymous(nil)},
		"onError":        {httpthrottle.Rule(throttle.Must(throttle.Lease("l", 1, time.Second)))},
		"cost":           {api, httpthrottle.Cost(-1)},
		"cost ":          {httpthrottle.Rule(gcra(t, "api"), httpthrottle.Cost(1e12+1))},
		"key":            {httpthrottle.Rule(gcra(t, "api"), httpthrottle.KeyOf("A", ""))},
		"key ":           {api, httpthrottle.Key(nil)},
		"key  ":          {httpthrottle.Rule(gcra(t, "api"), httpthrottle.Key(nil))},
		"cost  ":         {api, httpthrottle.CostFunc(nil)},
		"skip":           {api, httpthrottle.Skip(nil)},
		"tag":            {api, httpthrottle.Tag(nil)},
		"onDenied":       {api, httpthrottle.OnDenied(nil)},
		"onFailure":      {api, httpthrottle.OnFailure(nil)},
		"headers":        {api, httpthrottle.Headers("draft-7")},
		"trustedProxies": {api, httpthrottle.TrustedProxies("10.0.0.0/33")},
		"degradedHeader": {api, httpthrottle.DegradedHeader("a b")},
		"options":        {api, nil},
		"options ":       {httpthrottle.Rule(gcra(t, "api"), nil)},
	}
	limiter := without(t, throttle.WithOnError(throttle.Local))
	for argument, opts := range all {
		_, err := httpthrottle.Limit(limiter, opts...)
		var wrong *throttle.InvalidArgument
		if !errors.As(err, &wrong) || wrong.Argument != strings.TrimSpace(argument) {
			t.Errorf("%s: %v", argument, err)
		}
	}
	if _, err := httpthrottle.Limit(nil, byRequest...); err == nil {
		t.Error("a nil limiter")
	}
}

func TestResponds_400_if_the_key_function_finds_no_subject(t *testing.T) {
	limiter := without(t)
	latin := func(*http.Request) string { return "\xff" }
	keys := map[string]httpthrottle.Option{
		"empty": httpthrottle.Key(func(r *http.Request) string {
			return r.Header.Get("X-Api-Key")
		}),
		"missing": httpthrottle.Key(func(r *http.Request) string {
			return r.Header["X-Api-Key"][0]
		}),
		"no UTF-8":          httpthrottle.Key(latin),
		"a tag in no UTF-8": httpthrottle.Tag(latin),
	}
	for name, key := range keys {
		never := func(http.ResponseWriter, *http.Request) { t.Error(name, "was served") }
		w := serve(limited(t, limiter, never, httpthrottle.Rule(gcra(t, "api")), key), get())
		var body throttle.Problem
		err := json.Unmarshal(w.Body.Bytes(), &body)
		if err != nil || w.Code != 400 || body.Detail != throttle.NoSubject().Detail ||
			w.Header().Get("Content-Type") != "application/problem+json" ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Error(name, w.Code, w.Header(), err)
		}
	}
	abort := func(*http.Request) string { panic(http.ErrAbortHandler) }
	handler := limited(t, limiter, served,
		httpthrottle.Rule(gcra(t, "api")), httpthrottle.Key(abort))
	defer func() {
		if problem := recover(); problem != http.ErrAbortHandler {
			t.Error("an abort became", problem)
		}
	}()
	serve(handler, get())
}

func TestDegraded_header_comes_from_the_limiter_alone(t *testing.T) {
	const name = "X-Limiter-Degraded"
	var seen []string
	handler := func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Values(name) }
	api := httpthrottle.Rule(gcra(t, "api"))
	marks := httpthrottle.DegradedHeader("x-limiter-degraded")
	skips := httpthrottle.Skip(func(*http.Request) bool { return true })
	for what, one := range map[string]struct {
		handler http.Handler
		isThere bool
	}{
		"degraded": {limited(t, without(t), handler, api, marks), true},
		"skipped inside of a degraded one": {
			limited(t, without(t), limited(t, without(t), handler, api, marks, skips).ServeHTTP,
				api, marks), true,
		},
	} {
		r := get()
		r.Header.Add(name, "forged")
		serve(one.handler, r)
		if one.isThere != (len(seen) == 1 && seen[0] == "1") || !one.isThere && len(seen) > 0 {
			t.Error(what, seen)
		}
		if r.Header.Get(name) != "forged" {
			t.Error(what, "changed the caller's request")
		}
	}
}

func TestFailures_get_a_500_or_the_response_of_OnFailure(t *testing.T) {
	wrong := httpthrottle.RuleFunc(func(*http.Request) *throttle.Rule { return &throttle.Rule{} })
	api := httpthrottle.Rule(gcra(t, "api"))
	never := func(http.ResponseWriter, *http.Request) { t.Error("was served") }
	for name, opts := range map[string][]httpthrottle.Option{
		"rule": {wrong},
	} {
		if w := serve(limited(t, without(t), never, opts...), get()); w.Code != 500 {
			t.Error(name, w.Code, w.Body)
		}
		var got error
		own := httpthrottle.OnFailure(func(w http.ResponseWriter, _ *http.Request, err error) {
			got = err
			w.WriteHeader(http.StatusTeapot)
		})
		var invalid *throttle.InvalidArgument
		w := serve(limited(t, without(t), never, append(opts, own)...), get())
		if w.Code != http.StatusTeapot || !errors.As(got, &invalid) {
			t.Error(name, w.Code, got)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	serve(limited(t, without(t), never, api), get().WithContext(ctx))
	closed := without(t)
	_ = closed.Close(context.Background())
	if w := serve(limited(t, closed, never, api), get()); w.Code != 500 {
		t.Error("closed:", w.Code)
	}
}
