package main

import (
	"context"
	"errors"
	"iter"
	"log"
	"net/http"
	"regexp"
	"strconv"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
)

// Chats: two at once, 1,000 tokens per minute, 10,000 per month. Tokens cost money: if Redis is
// down, no chat is served.
var (
	chats  = throttle.Must(throttle.Lease("chats", 2, 30*time.Second))
	tokens = throttle.Must(throttle.TokenBucket("tokens", 1000, 1000, time.Minute))
	budget = throttle.Must(throttle.Quota("budget", 10_000, throttle.Month,
		throttle.WithOnError(throttle.Deny)))
)

// chat takes the estimated tokens of a reply, and settles those that it took.
func chat(limiter *throttle.Limiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query, key := r.URL.Query(), apiKey(r)
		estimate, hasEstimate := units(query.Get("estimate"))
		words, hasWords := units(query.Get("words"))
		if key == "" || !hasEstimate || !hasWords {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("expected X-Api-Key, estimate and words"))
			return
		}
		d, written, err := generate(r.Context(), limiter, key, estimate, words)
		var denied *throttle.Denied
		switch {
		case errors.As(err, &denied):
			httpthrottle.Deny(w, denied.Decision)
			return
		case err != nil:
			log.Print(err)
			http.Error(w, "the chat failed", http.StatusInternalServerError)
			return
		}
		for name, value := range d.Headers(throttle.HeaderOptions{}) {
			w.Header().Set(name, value)
		}
		writeJSON(w, struct {
			Remaining int64 `json:"remaining"`
			Words     int64 `json:"words"`
		}{d.Remaining, written})
	}
}

// generate returns the decision and the number of words of the reply.
func generate(
	ctx context.Context, limiter *throttle.Limiter, key string, estimate, words int64,
) (d throttle.Decision, written int64, err error) {
	admitted, err := limiter.Admit(ctx, []throttle.Item{
		chats.Of(key), tokens.Of(key).Cost(estimate), budget.Of(key).Reserve(estimate, 0),
	})
	if err != nil {
		return d, 0, err
	}
	defer admitted.Finish(ctx)
	for range model(words) {
		written++
	}
	return admitted.Decision(), written,
		errors.Join(admitted.Settle(tokens, written), admitted.Settle(budget, written))
}

var short = regexp.MustCompile(`^[0-9]{1,4}$`)

// units returns a number of at most four digits.
func units(text string) (int64, bool) {
	value, err := strconv.ParseInt(text, 10, 64)
	return value, err == nil && short.MatchString(text)
}

// model stands for a language model.
func model(words int64) iter.Seq[string] {
	return func(yield func(string) bool) {
		for range words {
			if !yield("word") {
				return
			}
		}
	}
}
