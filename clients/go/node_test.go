package throttle

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// dialerOf is a function as the dialer of one server.
type dialerOf func(ctx context.Context) (Conn, error)

func (d dialerOf) Dial(ctx context.Context, _ string) (Conn, error) { return d(ctx) }

// rawConn is a connection whose replies a function returns when they are waited for.
type rawConn struct {
	once    sync.Once
	closed  chan struct{}
	receive func(c *rawConn) (any, error)
}

func newRawConn(receive func(c *rawConn) (any, error)) *rawConn {
	return &rawConn{closed: make(chan struct{}), receive: receive}
}

func (c *rawConn) Send([]string) error   { return nil }
func (c *rawConn) Receive() (any, error) { return c.receive(c) }
func (c *rawConn) Interrupt()            {}

func (c *rawConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// limiterFrom returns a limiter over a dialer that is no script.
func limiterFrom(t *testing.T, dialer Dialer, opts ...Option) *Limiter {
	t.Helper()
	limiter, err := New(dialer, append(opts, WithLogErrors(false))...)
	if err != nil {
		t.Fatal(err)
	}
	limiter.x.jitter = func() float64 { return 1 }
	return limiter
}

func TestInterrupted_call_whose_connection_another_call_closes_gets_no_reply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		limiter := limiterFrom(t, dialerOf(func(context.Context) (Conn, error) {
			dials++
			if dials > 1 {
				return newRawConn(func(*rawConn) (any, error) {
					return nil, ServerError("READONLY")
				}), nil
			}
			return newRawConn(func(c *rawConn) (any, error) {
				// The interruption was seen before the connection closed.
				<-c.closed
				return nil, ErrInterrupted
			}), nil
		}))
		defer limiter.Close(context.Background())
		var first sync.WaitGroup
		first.Go(func() {
			d, err := limiter.Check(context.Background(), testRule().Of("a"))
			if err != nil || !d.Degraded || d.Reason != ReasonConnection {
				t.Errorf("%+v, %v", d, err)
			}
		})
		synctest.Wait()
		if d := mustCheck(t, limiter, context.Background()); d.Reason != ReasonServer {
			t.Error(d)
		}
		first.Wait()
	})
}

// allowed is the reply to an allowed call, which a REFUND has as well.
var allowed = []any{1.0, 10.0, 9.0, 0.0, 6000.0}

// replyAlways sets the reply to all commands.
func (s *script) replyAlways(item any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = item
}

func TestDial_that_never_returns_holds_no_call_and_no_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		var dials atomic.Int32
		limiter := limiterFrom(t, dialerOf(func(context.Context) (Conn, error) {
			dials.Add(1)
			<-over
			return nil, context.Canceled
		}))
		began := time.Now()
		for call := range 200 {
			d := mustCheck(t, limiter, context.Background())
			if d.Reason != ReasonConnection && d.Reason != ReasonCircuit {
				t.Error(call, d)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Error(call, "took", took)
			}
			time.Sleep(time.Second)
			began = time.Now()
		}
		if err := limiter.Close(context.Background()); err != nil || dials.Load() > lateMax {
			t.Error(dials.Load(), err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Error("Close took", took)
		}
	})
}
