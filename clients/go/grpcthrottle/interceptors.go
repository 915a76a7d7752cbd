package grpcthrottle

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/web"
)

// Unary is a [grpc.UnaryServerInterceptor].
func (l *Limits) Unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	var response any
	err := l.around(ctx, Call{Method: info.FullMethod, Request: request}, func() error {
		var err error
		response, err = handler(ctx, request)
		return err
	})
	return response, err
}

// Stream is a [grpc.StreamServerInterceptor].
func (l *Limits) Stream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return l.around(stream.Context(), Call{Method: info.FullMethod}, func() error {
		return handler(server, stream)
	})
}

// leavable is the context of a call whose end is a cancellation, also at its deadline. A client
// chooses that: it must not reach OnError by a short one.
type leavable struct{ context.Context }

// Deadline returns none.
func (leavable) Deadline() (time.Time, bool) { return time.Time{}, false }

// Err returns [context.Canceled] after the end.
func (l leavable) Err() error {
	if l.Context.Err() != nil {
		return context.Canceled
	}
	return nil
}

// around runs the handler of a call that the rules allow, and returns its error.
func (l *Limits) around(ctx context.Context, call Call, handler func() error) error {
	if l == nil || l.limiter == nil {
		return statusOf(invalid("limits", "limits made by New"))
	}
	if l.skip(ctx, call) {
		return deniedStatus(handler())
	}
	subject := web.Subject(&l.keyFailed, func() string { return l.key(ctx, call) })
	if subject == "" {
		return refused(throttle.NoSubject())
	}
	items, ok := l.items(ctx, call, subject)
	if !ok {
		return refused(throttle.InvalidCost())
	}
	decision, release, err := l.take(leavable{ctx}, items)
	if ended := ctx.Err(); ended != nil && (err == nil || errors.Is(err, context.Canceled)) {
		if err == nil {
			release()
		}
		return statusOf(ended)
	}
	if err != nil {
		return statusOf(err)
	}
	defer release()
	// A panic of the handler is a failure with this status.
	status := 500
	defer func() {
		// A call that its client left counts: its handler ran, and a stream may have had all.
		if ctx.Err() == nil {
			l.giveBack(items, decision, status)
		}
	}()
	err = deniedStatus(handler())
	status = httpStatus(err)
	return err
}

// take decides a call, and returns a function that releases its leases. A denial is an error.
func (l *Limits) take(
	ctx context.Context, items []throttle.Item,
) (throttle.Decision, func(), error) {
	if l.isHeld {
		admitted, err := l.limiter.Admit(ctx, items)
		if err != nil {
			return throttle.Decision{}, nil, err
		}
		return admitted.Decision(), admitted.FinishLater, nil
	}
	var decision throttle.Decision
	var err error
	if len(items) == 1 {
		decision, err = l.limiter.Check(ctx, items[0])
	} else {
		decision, err = l.limiter.CheckAll(ctx, items)
	}
	if err == nil && !decision.Allowed {
		err = &throttle.Denied{Decision: decision}
	}
	return decision, func() {}, err
}

// giveBack gives back what does not count. The limiter counts a rejected refund. Without a final
// reply, the units stay taken.
func (l *Limits) giveBack(items []throttle.Item, decision throttle.Decision, status int) {
	rows := decision.Rows
	if len(rows) != len(items) {
		rows = []throttle.Decision{decision}
	}
	for at, row := range rows {
		if !l.counts.Of(items[at].Rule(), status) {
			_ = l.limiter.GiveBack(items[at], row)
		}
	}
}
