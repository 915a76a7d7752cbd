// Package grpcthrottle limits the calls of a gRPC server:
//
//	limits, err := grpcthrottle.New(limiter, tenant, []*throttle.Rule{api, runs})
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limits.Unary), grpc.ChainStreamInterceptor(limits.Stream))
//
// A stream is one call. A denied call does not reach its handler. Its status is ResourceExhausted
// with a RetryInfo; without one, if a retry never helps. That of a banned subject is
// PermissionDenied. If OnError denied, it is Unavailable. A handler that returns a
// [throttle.Denied] of its own gets the same status.
//
// A call that its client leaves ends, also at the client's deadline, and does not reach its
// handler: a client that chose a short one would otherwise bypass a rule that allows calls without
// a final reply. A lease is held until its handler returns, also if it is lost meanwhile; a stream
// that must end then takes its own with [throttle.Limiter.Lease].
package grpcthrottle

import (
	"context"
	"sync"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/web"
)

// Call is a call of the server.
type Call struct {
	// Method is the full name, such as "/package.Service/Method".
	Method string
	// Request is the message of a unary call; nil of a stream.
	Request any
}

// Key returns the subject of a call: its user, address or tenant. A call whose subject is empty or
// not UTF-8 gets the status InvalidArgument; the same if the function panics by a [runtime.Error],
// such as for an index of metadata that is missing, which is logged once. Another panic goes on.
type Key func(ctx context.Context, call Call) string

// Limits are the rules of a server's calls. [Limits.Unary] and [Limits.Stream] are its
// interceptors. They may be used by several servers.
type Limits struct {
	limiter *throttle.Limiter
	key     Key
	rules   []*throttle.Rule
	cost    func(ctx context.Context, call Call) int64
	skip    func(ctx context.Context, call Call) bool
	isHeld  bool

	keyFailed, costFailed sync.Once
	counts                web.Counts
}

// Option is an option of [New].
type Option func(*Limits)

// CostFunc sets the function that returns the cost of a call, from 0 to 10^12 units. A call with
// another gets the status InvalidArgument, and the first is logged. Leases and backoffs take no
// cost, and ignore it. The default is 1.
func CostFunc(cost func(ctx context.Context, call Call) int64) Option {
	return func(l *Limits) { l.cost = cost }
}

// Skip sets the function that returns true for calls that are not limited, such as health checks.
func Skip(skip func(ctx context.Context, call Call) bool) Option {
	return func(l *Limits) { l.skip = skip }
}

// New returns limits of 1 to 16 rules. A call takes from all or from none. Leases among them are
// released in the background when the handler has returned. What a call took that does not count,
// by the rule's [throttle.Count], is given back in the background. A Count gets the HTTP status of
// the call's code, such as 401 for Unauthenticated. A call that its client leaves, also by a
// deadline, always counts. New returns an [throttle.InvalidArgument] for a wrong argument.
func New(
	limiter *throttle.Limiter, key Key, rules []*throttle.Rule, options ...Option,
) (*Limits, error) {
	l := &Limits{
		limiter: limiter, key: key, rules: append([]*throttle.Rule(nil), rules...),
		cost: func(context.Context, Call) int64 { return 1 },
		skip: func(context.Context, Call) bool { return false },
	}
	for _, option := range options {
		if option == nil {
			return nil, invalid("options", "no nil")
		}
		option(l)
	}
	switch {
	case limiter == nil:
		return nil, invalid("limiter", "a limiter made by throttle.New")
	case key == nil:
		return nil, invalid("key", "a function, or ByMetadata of one or more names")
	case l.cost == nil:
		return nil, invalid("cost", "a function")
	case l.skip == nil:
		return nil, invalid("skip", "a function")
	case len(rules) < 1 || len(rules) > 16:
		return nil, invalid("rules", "1 to 16 rules")
	}
	names := map[string]bool{}
	for _, rule := range rules {
		if err := limiter.CanDecide(rule); err != nil {
			return nil, err
		}
		if names[rule.Name()] {
			return nil, invalid("rules", "no repeated name")
		}
		names[rule.Name()] = true
		l.isHeld = l.isHeld || rule.Kind() == throttle.KindLease
	}
	return l, nil
}

func invalid(argument, expected string) error {
	return &throttle.InvalidArgument{Argument: argument, Expected: expected}
}

// items returns what a call takes; false if it has no cost that a call can have.
func (l *Limits) items(ctx context.Context, call Call, subject string) ([]throttle.Item, bool) {
	cost := l.cost(ctx, call)
	items := make([]throttle.Item, len(l.rules))
	for at, rule := range l.rules {
		items[at] = rule.Of(subject)
		if !rule.TakesCost() {
			continue
		}
		if !web.IsCost(&l.costFailed, cost) {
			return nil, false
		}
		items[at] = items[at].Cost(cost)
	}
	return items, true
}
