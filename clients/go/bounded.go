package throttle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// lateMax is the largest number of functions of a dialer that outlive their contexts.
	lateMax = 64
	// lateLongest is the time for which the end of a limiter waits for such a function.
	lateLongest = time.Second
)

// bounded runs a function of the dialer, which may ignore its context, and passes its result on, or
// the error of the context if that ends first. The connection of a late function is closed.
func (x *exchange) bounded(
	ctx context.Context, run func(ctx context.Context) (Conn, error), then func(Conn, error),
) {
	if x.late.Load() >= lateMax {
		then(nil, notConnected(fmt.Errorf("%d dials do not end", lateMax)))
		return
	}
	type result struct {
		conn Conn
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		conn, err := run(ctx)
		ended <- result{conn, err}
	}()
	select {
	case one := <-ended:
		then(one.conn, one.err)
		return
	case <-ctx.Done():
	}
	select {
	case one := <-ended:
		then(one.conn, one.err)
		return
	default:
	}
	x.late.Add(1)
	then(nil, notConnected(ctx.Err()))
	discard := func(one result) {
		x.late.Add(-1)
		if one.conn != nil {
			_ = one.conn.Close()
		}
	}
	timer := time.NewTimer(lateLongest)
	defer timer.Stop()
	select {
	case one := <-ended:
		discard(one)
	case <-timer.C:
		go func() { discard(<-ended) }()
	}
}

// dialOnce opens a connection. A panic in a function of the program, such as one that returns
// credentials, is an error.
func (x *exchange) dialOnce(ctx context.Context, name string) (conn Conn, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = &Unavailable{
				Reason: ReasonConnection, message: fmt.Sprintf("the dial panicked: %v", problem),
			}
		}
	}()
	conn, err = x.dialer.Dial(ctx, name)
	var said ServerError
	switch {
	case err == nil && conn == nil:
		err = errors.New("the dialer returned no connection")
	case err == nil:
		return conn, nil
	case errors.As(err, &said):
		return nil, x.classified(said)
	}
	return nil, notConnected(err)
}

func notConnected(err error) error {
	return &Unavailable{
		Reason: ReasonConnection, message: "not connected: " + err.Error(), err: err,
	}
}
