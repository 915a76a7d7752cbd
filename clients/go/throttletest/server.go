// Package throttletest has a fake server for the tests of an application. It decides in this
// process, on a clock that the test advances, and fails on request:
//
//	server := throttletest.NewServer()
//	limiter, err := throttle.New(server)
//	...
//	server.Advance(6 * time.Second)
//	server.Fail(throttle.ServerError("OOM command not allowed")) // or Fail(nil), or Hang()
//	server.Recover()
//
// It computes GCRA, token and leaky buckets and windows, as a limiter without a server does. The
// replies to leases, reservations, quotas, backoffs, policies and blocks are queued with
// [Server.Script]. Or use a server: redis-throttle-lab serve needs no Redis.
package throttletest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	throttle "redis-throttle.invalid/go"
)

// start is the start of the clock.
var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Server is a fake server, a [throttle.Dialer]. Its methods may be called by several goroutines.
type Server struct {
	mu  sync.Mutex
	now time.Time
	// clock is nil if only Advance moves now. Otherwise read is its time at the last reading.
	clock func() time.Time
	read  time.Time
	// keys has the call that last changed each key.
	keys    map[string]*call
	script  []any
	calls   [][]string
	failure error
	// hanging is closed by Recover; nil if the server replies.
	hanging chan struct{}
}

// NewServer creates an empty server. Its clock stands still at 2024-01-01 00:00:00 UTC.
func NewServer() *Server { return &Server{now: start, keys: map[string]*call{}} }

// Advance moves the server's clock. The limiter's own times, such as those of its Wait, its breaker
// and the renewal of leases, stay those of this process; see Follow.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// Follow makes the server's clock also move with another. With [time.Now] in a bubble of
// [testing/synctest] the server and the limiter have one clock, which a [time.Sleep] of the test
// moves.
func (s *Server) Follow(clock func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock, s.read = clock, clock()
}

// Fail makes each call fail with this error until Recover, and runs none. A [throttle.ServerError]
// is an error reply; for any other the connection is lost. Nil is a lost connection.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = errors.New("connection reset")
	}
	s.failure = err
}

// Script queues replies for the next commands that the server does not compute, one for each: an
// int, a string, a list of these as []any, or an error. Without a reply such a command is refused,
// and the error names it.
func (s *Server) Script(replies ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, raw(slices.Clone(replies)).([]any)...)
}

// raw returns a reply as a connection returns it.
func raw(reply any) any {
	switch reply := reply.(type) {
	case int:
		return int64(reply)
	case []any:
		for at, one := range reply {
			reply[at] = raw(one)
		}
	}
	return reply
}

// Hang runs calls, but sends no reply until Recover.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hanging == nil {
		s.hanging = make(chan struct{})
	}
}

// Recover ends Fail and Hang, and sends the replies that were waiting.
func (s *Server) Recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = nil
	if s.hanging != nil {
		close(s.hanging)
		s.hanging = nil
	}
}

// Calls returns the words of each command received, in order.
func (s *Server) Calls() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := make([][]string, len(s.calls))
	for at, words := range s.calls {
		calls[at] = slices.Clone(words)
	}
	return calls
}

// Dial implements [throttle.Dialer]. It always succeeds.
func (s *Server) Dial(context.Context, string) (throttle.Conn, error) {
	return &conn{
		server: s, closed: make(chan struct{}), interrupted: make(chan struct{}, 1),
	}, nil
}

type conn struct {
	server      *Server
	closed      chan struct{}
	once        sync.Once
	interrupted chan struct{}
	// reply and err are the result of the command; hanging is closed when they may be read.
	reply   any
	err     error
	hanging chan struct{}
}

// Close implements [throttle.Conn].
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// Send implements [throttle.Conn].
func (c *conn) Send(words []string) error {
	select {
	case <-c.closed:
		return throttle.ErrNotSent
	default:
	}
	c.reply, c.hanging, c.err = c.server.run(words)
	return nil
}

// Receive implements [throttle.Conn].
func (c *conn) Receive() (any, error) {
	if c.hanging == nil {
		return c.reply, c.err
	}
	select {
	case <-c.hanging:
		return c.reply, c.err
	default:
	}
	select {
	case <-c.hanging:
		return c.reply, c.err
	case <-c.interrupted:
		return nil, throttle.ErrInterrupted
	case <-c.closed:
		return nil, errors.New("connection closed")
	}
}

// Interrupt implements [throttle.Conn].
func (c *conn) Interrupt() {
	select {
	case c.interrupted <- struct{}{}:
	default:
	}
}

// run runs a command. The channel is closed when the reply may be sent; nil is at once.
func (s *Server) run(words []string) (reply any, hanging chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, slices.Clone(words))
	if s.failure != nil {
		return nil, s.hanging, s.failure
	}
	if s.clock != nil {
		now := s.clock()
		s.now, s.read = s.now.Add(now.Sub(s.read)), now
	}
	reply, err = s.reply(words)
	return reply, s.hanging, err
}

// nowNanos returns the time of the clock in nanoseconds, of which the server knows whole
// microseconds.
func (s *Server) nowNanos() int64 { return s.now.UnixMicro() * 1000 }
