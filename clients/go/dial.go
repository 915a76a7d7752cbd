package throttle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// dialsMax is the maximum number of dials at a time. The first dial is alone.
	dialsMax = 8
	// dialMin is the shortest time that a dial may take before it counts as failed.
	dialMin = time.Second
	// dialPauseMax is the longest pause after a failed dial.
	dialPauseMax = time.Second
)

// refusal returns the error of a call that needs a dial while none may begin.
func (p *pool) refusal(now time.Time) error {
	if p.isClosed {
		return notSent(ReasonConnection, "not sent: the connections to the node are closed")
	}
	left := p.dialAgainAt.Sub(now)
	if p.dialling > 0 || p.open > 0 || left <= 0 {
		return nil
	}
	var rejected *CommandRejected
	if errors.As(p.refused, &rejected) {
		return p.refused
	}
	text := fmt.Sprintf("not sent: the server is dialled again in %v", left)
	return notSent(ReasonConnection, text)
}

// dialMore starts the dials that the waiting calls need.
func (p *pool) dialMore(n *node, now time.Time) {
	if p.isUnwanted() || p.isClosed || now.Before(p.dialAgainAt) {
		return
	}
	for p.dialling < min(p.urgent.length+p.line.length, p.room(n)) {
		if p.dialling == 0 {
			p.isCounted = false
		}
		p.dialling++
		longest := p.dialLongest(n)
		if !n.x.tasks.run(func(ctx context.Context) { n.dial(ctx, longest) }) {
			p.dialling--
			return
		}
	}
}

// spare returns the number of calls that lack only a connection which may be dialled.
func (p *pool) spare(n *node, now time.Time) int {
	if now.Before(p.dialAgainAt) {
		return 0
	}
	return max(0, min(openMax, n.x.options.maxInFlight)-p.open)
}

// room returns the number of connections that may be dialled at once.
func (p *pool) room(n *node) int {
	most, ramp := min(openMax, n.x.options.maxInFlight), dialsMax
	if p.urgent.first != nil {
		most += renewalSlots + endSlots
	}
	if p.open == 0 {
		ramp = 1
	}
	return min(ramp, most-p.open)
}

// dialLongest returns the longest time of a dial: that of Ready, if it waits.
func (p *pool) dialLongest(n *node) time.Duration {
	longest := max(dialMin, n.x.options.timeout)
	for t := p.line.first; t != nil && !p.wasDialled; t = t.next {
		longest = max(longest, t.call.limit)
	}
	return longest
}

// dial opens a connection for the calls that wait.
func (n *node) dial(ctx context.Context, longest time.Duration) {
	ctx, stop := context.WithTimeout(ctx, longest)
	defer stop()
	dial := func(ctx context.Context) (Conn, error) { return n.x.dialOnce(ctx, n.name) }
	n.x.bounded(ctx, dial, n.dialled)
}

// dialled notes the end of a dial.
func (n *node) dialled(conn Conn, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, now := &n.pool, time.Now()
	p.dialling--
	if err != nil {
		p.failDial(n, err, now)
		return
	}
	p.dialAgainAt, p.refused = time.Time{}, nil
	p.open++
	heardAt := n.clock.now(now)
	if login, ok := conn.(interface{ HasRead() bool }); ok && login.HasRead() {
		n.heard = heardAt
	}
	if !p.wasDialled {
		p.wasDialled = true
		n.restart(now)
	}
	l := &link{conn: conn, generation: p.generation, heardAt: heardAt, interrupt: conn.Interrupt}
	p.put(n, l, now)
	p.dialMore(n, now)
}

// restart gives the calls that waited for the first dial their whole time.
func (n *node) restart(now time.Time) {
	run := n.clock.now(now)
	for t := n.pool.line.first; t != nil; t = t.next {
		t.arrivedAt, t.dueAt, t.wallEnd = run, run+t.limit, now.Add(wallFactor*t.limit)
		n.setPatience(t, now)
	}
}

// failDial notes a dial that ended without a connection. The dials under way are one failure.
func (p *pool) failDial(n *node, err error, now time.Time) {
	p.wasDialled = true
	// Many processes lose the same server at once and should not all dial it at once.
	pause := min(n.x.options.breakerPause, dialPauseMax)
	p.dialAgainAt = now.Add(time.Duration(float64(pause) * n.x.jitter()))
	p.refused = err
	var rejected *CommandRejected
	switch {
	case errors.As(err, &rejected):
		n.noteFinalReply()
	case !p.isCounted:
		p.isCounted = true
		n.breaker.fail(now)
	}
	if p.open == 0 {
		p.endLine(func(*turn) error { return err })
	}
}

func jitter() float64 { return 0.8 + 0.2*rand.Float64() }

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
