package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
)

var (
	// Ten at once, then one every six seconds. If Redis is down, the page is served.
	api = throttle.Must(throttle.GCRA("api", 10, 10, time.Minute))
	// For the API keys of a better plan.
	gold = throttle.Must(throttle.GCRA("gold", 30, 30, time.Minute))
	// Five wrong passwords in 15 minutes. If Redis is down, no password is checked.
	login = throttle.Must(throttle.SlidingLog("login", 5, 15*time.Minute,
		throttle.WithCount(throttle.CountFailures), throttle.WithOnError(throttle.Deny)))
	// For a service of two processes: if Redis is down, each enforces half of the limit.
	search = throttle.Must(throttle.GCRA("search", 4, 4, time.Minute,
		throttle.WithOnError(throttle.Local), throttle.WithLocalShare(0.5)))
	day = throttle.Must(throttle.Fixed("day", 3, 24*time.Hour))
	// One export at a time. The permit is released when the handler returns.
	exports = throttle.Must(throttle.Lease("exports", 1, 30*time.Second))
)

// routes returns the routes, each with its rules.
func routes(limiter *throttle.Limiter, rows int, proxies []string) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, route := range []struct {
		pattern string
		handler http.HandlerFunc
		rules   []httpthrottle.Option
	}{
		{"GET /{$}", showDecision, []httpthrottle.Option{httpthrottle.Rule(api)}},
		{"POST /login", logIn, []httpthrottle.Option{httpthrottle.Rule(login)}},
		{"GET /search", showDecision, []httpthrottle.Option{httpthrottle.Rule(search)}},
		{"GET /report", showDecision, []httpthrottle.Option{
			httpthrottle.Rule(api), httpthrottle.Rule(day),
		}},
		{"GET /export", export(rows), []httpthrottle.Option{httpthrottle.Rule(exports)}},
		// By the API key in a header. A request without the header gets a 400.
		{"GET /me", showDecision, []httpthrottle.Option{
			httpthrottle.RuleFunc(plan), httpthrottle.Key(apiKey),
		}},
	} {
		limit, err := httpthrottle.Limit(limiter, append(route.rules,
			httpthrottle.TrustedProxies(proxies...),
			httpthrottle.DegradedHeader("X-Limiter-Degraded"))...)
		if err != nil {
			return nil, err
		}
		mux.Handle(route.pattern, limit(route.handler))
	}
	mux.HandleFunc("POST /chat", chat(limiter))
	return mux, nil
}

func apiKey(r *http.Request) string { return r.Header.Get("X-Api-Key") }

// plan returns the rule of an API key's plan, which a real service looks up.
func plan(r *http.Request) *throttle.Rule {
	if strings.HasPrefix(apiKey(r), "gold-") {
		return gold
	}
	return api
}

// showDecision writes the units left and the source of the decision.
func showDecision(w http.ResponseWriter, r *http.Request) {
	d, _ := httpthrottle.DecisionOf(r.Context())
	writeJSON(w, struct {
		Remaining int64           `json:"remaining"`
		Source    throttle.Source `json:"source"`
	}{d.Remaining, d.Source})
}

func writeJSON(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

var alice = sha256.Sum256([]byte("Basic YWxpY2U6c2VjcmV0")) // alice:secret

// logIn checks a password. The middleware refunds the attempt if the password is right.
func logIn(w http.ResponseWriter, r *http.Request) {
	given := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	if subtle.ConstantTimeCompare(given[:], alice[:]) == 1 {
		showDecision(w, r)
		return
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="example"`)
	w.WriteHeader(http.StatusUnauthorized)
}

// export streams rows slowly.
func export(rows int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		response := http.NewResponseController(w)
		for range rows {
			_, err := io.WriteString(w, strings.Repeat("row\n", 100))
			if err != nil || response.Flush() != nil {
				return
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	}
}
