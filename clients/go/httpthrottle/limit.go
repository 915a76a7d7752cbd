// Package httpthrottle limits the requests of net/http servers:
//
//	limit, err := httpthrottle.Limit(limiter, httpthrottle.Rule(api))
//	if err != nil {
//		return err
//	}
//	http.Handle("/", limit(handler))
//
// A request over the limit gets a 429 response, with Retry-After and a body of
// application/problem+json. Routers whose middleware is a func(http.Handler) http.Handler, such as
// chi, use it as it is.
package httpthrottle

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	throttle "redis-throttle.invalid/go"
)

// Limit returns a middleware that limits the requests of a handler by rules: at least one [Rule] or
// [RuleFunc], at most 16. The subject is the client's address, unless there is a [Key]. It returns
// an [throttle.InvalidArgument] for an invalid option, such as a nil function.
//
// Leases are held until the handler has returned, also if the client is gone before, and released
// in the background. They are not held for work that it leaves behind: put the limit inside of an
// [http.TimeoutHandler]. What a response took that does not count, by the rule's [throttle.Count],
// is given back in the background. A request whose client is gone before the head always counts.
func Limit(
	limiter *throttle.Limiter, opts ...Option,
) (func(http.Handler) http.Handler, error) {
	p := &plan{limiter: limiter}
	for _, one := range opts {
		if one == nil {
			p.invalid("options", "no nil")
			continue
		}
		one.applyPlan(p)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.serve(next, w, r)
		})
	}, nil
}

// taken is what a request took.
type taken struct {
	items    []throttle.Item
	decision throttle.Decision
	opts     []throttle.CallOption
	// release releases the leases in the background; nil without leases.
	release func()
}

func (p *plan) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if p.skips != nil && p.skips(r) {
		next.ServeHTTP(w, p.withDecision(r, nil))
		return
	}
	items, refusal := p.items(r)
	if refusal != nil {
		writeProblem(w, *refusal)
		return
	}
	if len(items) == 0 {
		next.ServeHTTP(w, p.withDecision(r, nil))
		return
	}
	t := &taken{items: items}
	if p.tag != nil {
		tag := p.tag(r)
		if !utf8.ValidString(tag) {
			writeProblem(w, throttle.NoSubject())
			return
		}
		if tag != "" {
			t.opts = append(t.opts, throttle.Tag(tag))
		}
	}
	if err := t.take(r.Context(), p.limiter); err != nil {
		p.fail(w, r, err)
		return
	}
	if !t.decision.Allowed {
		p.deny(w, r, t.decision)
		return
	}
	p.admit(next, w, r, t)
}

// take decides the items in one call. A denial is no error.
func (t *taken) take(ctx context.Context, limiter *throttle.Limiter) (err error) {
	hasLease := slices.ContainsFunc(t.items, func(item throttle.Item) bool {
		return item.Rule() != nil && item.Rule().Kind() == throttle.KindLease
	})
	switch {
	case hasLease && len(t.items) == 1:
		var permit *throttle.Permit
		if permit, err = limiter.Lease(ctx, t.items[0], t.opts...); err == nil {
			t.decision, t.release = permit.Decision(), permit.ReleaseLater
		}
	case hasLease:
		var admitted *throttle.Admission
		if admitted, err = limiter.Admit(ctx, t.items, t.opts...); err == nil {
			t.decision, t.release = admitted.Decision(), admitted.FinishLater
		}
	case len(t.items) == 1:
		t.decision, err = limiter.Check(ctx, t.items[0], t.opts...)
	default:
		t.decision, err = limiter.CheckAll(ctx, t.items, t.opts...)
	}
	var denied *throttle.Denied
	if errors.As(err, &denied) {
		t.decision, err = denied.Decision, nil
	}
	return err
}

// admit serves a request that is allowed, and ends what it took.
func (p *plan) admit(next http.Handler, w http.ResponseWriter, r *http.Request, t *taken) {
	if t.release != nil {
		// Not when the client leaves: the work that the lease limits goes on. net/http sends a
		// short response after this has returned, so it does not wait for the server.
		defer t.release()
	}
	addFields(w.Header(), t.decision, p.styles)
	r = p.withDecision(r, &t.decision)
	notCounted := t.refundable()
	if len(notCounted) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	counted := &recorder{ResponseWriter: w, ctx: r.Context(), onHead: func(status int) {
		p.giveBack(t, notCounted, status)
	}}
	if r.Body != nil && r.Body != http.NoBody {
		counted.body = &watchedBody{ReadCloser: r.Body}
		r.Body = counted.body
	}
	defer counted.end()
	next.ServeHTTP(counted, r)
	counted.hasReturned = true
}

// fail responds to a request that could not be decided.
func (p *plan) fail(w http.ResponseWriter, r *http.Request, err error) {
	if p.onFailure != nil {
		p.onFailure(w, r, err)
		return
	}
	if r.Context().Err() == nil {
		slog.ErrorContext(r.Context(),
			"redis-throttle: a request could not be decided", "error", err)
	}
	writeProblem(w, throttle.Problem{
		Type: "about:blank", Title: "Internal Server Error", Status: http.StatusInternalServerError,
		Detail: "The rate limiter could not be asked.",
	})
}

func (p *plan) deny(w http.ResponseWriter, r *http.Request, d throttle.Decision) {
	addFields(w.Header(), d, p.styles)
	if p.onDenied == nil {
		writeProblem(w, d.Problem())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	p.onDenied(w, r, d)
}

// Deny responds to a request as the middleware does; for the decision of a [throttle.Denied], which
// a lease or an admission of a handler returns.
func Deny(w http.ResponseWriter, d throttle.Decision) {
	addFields(w.Header(), d, nil)
	writeProblem(w, d.Problem())
}

// addFields adds the fields of a decision. Those that are lists follow those of another limiter.
func addFields(fields http.Header, d throttle.Decision, styles []throttle.HeaderStyle) {
	for name, value := range d.Headers(throttle.HeaderOptions{Styles: styles}) {
		if name == "RateLimit" || name == "RateLimit-Policy" {
			fields.Add(name, value)
		} else {
			fields.Set(name, value)
		}
	}
}

func writeProblem(w http.ResponseWriter, problem throttle.Problem) {
	// It has texts and a number, which JSON can express.
	body, _ := json.Marshal(problem)
	fields := w.Header()
	fields.Set("Content-Type", "application/problem+json")
	fields.Set("Cache-Control", "no-store")
	// The response to HEAD has it, too.
	fields.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(problem.Status)
	_, _ = w.Write(body)
}

type decisionKey struct{}

// cleanedKey is the name of a header whose client's value an outer middleware removed.
type cleanedKey string

// DecisionOf returns the decision on the request of this context; false if it was not limited.
func DecisionOf(ctx context.Context) (throttle.Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(throttle.Decision)
	return d, ok
}

// withDecision returns the request for the handler, with the decision unless it is nil. That of an
// outer middleware stays then.
func (p *plan) withDecision(r *http.Request, d *throttle.Decision) *http.Request {
	ctx := r.Context()
	if d != nil {
		ctx = context.WithValue(ctx, decisionKey{}, *d)
	}
	if !p.hasDegraded {
		return r.WithContext(ctx)
	}
	name := http.CanonicalHeaderKey(p.degraded)
	isCleaned := ctx.Value(cleanedKey(name)) != nil
	r = r.WithContext(context.WithValue(ctx, cleanedKey(name), true))
	r.Header = r.Header.Clone()
	if !isCleaned {
		r.Header.Del(name)
	}
	if d != nil && d.Degraded {
		r.Header.Set(name, "1")
	}
	return r
}
