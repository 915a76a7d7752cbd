package throttle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// openMax is the maximum number of connections to a node; renewals and ends have leaseSlots
	// more.
	openMax = 64
	// dialsMax is the maximum number of dials at a time. The first dial is alone.
	dialsMax = 8
	// dialMin is the shortest time that a dial may take before it counts as failed.
	dialMin = time.Second
	// readyMin is the shortest time that Ready may take.
	readyMin = 5 * time.Second
	// dialPauseMax is the longest pause after a failed dial.
	dialPauseMax = time.Second
)

// pool has the connections to a node, and the calls in line for them. The node's mutex guards it.
type pool struct {
	idle []*link
	// open is the number of connections of the current generation. The last one was lost at the
	// run time lostAt, if there is none.
	open       int
	lostAt     time.Duration
	generation int
	// inFlight is the number of commands without a reply, those of renewals and ends apart.
	inFlight int
	// urgent are renewals, ends and searches; line are the others.
	urgent, line line
	dialling     int
	// isCounted says whether the dials under way have been counted as a failure.
	isCounted bool
	// wasDialled says whether the first dial has ended.
	wasDialled bool
	// dialAgainAt is the instant from which a dial is allowed. refused is why the last one failed.
	dialAgainAt time.Time
	refused     error
	isClosed    bool
}

// link is a connection of a pool. The node's mutex guards it, except for isSent.
type link struct {
	conn       Conn
	generation int
	// uses is the number of commands sent. The last reply, at first that of the login, was read at
	// the run time heardAt.
	uses        int
	hasAnswered bool
	heardAt     time.Duration
	isClosed    bool

	// turn is the call that waits for the reply; nil if its caller has gone.
	turn             *turn
	call             *call
	isBusy, isUrgent bool
	previous, next   *link
	// sentAt is the run time of sending. isSent says whether the command was written.
	sentAt time.Duration
	isSent atomic.Bool
	// A later command was answered at the run time overtakenAt, on another connection.
	isOvertaken bool
	overtakenAt time.Duration
	// mustLook says that the node waits for what has arrived here; isDoomed, that it is silent
	// alone; isStale, that it carries the command of a probe that got no reply in time.
	mustLook, isDoomed, isStale bool
	// interrupt is the method of the connection, made once.
	interrupt func()
}

// isExempt returns true for a command that is no sign of silence. The connection of one that was
// overtaken is closed alone.
func (l *link) isExempt() bool { return l.isStale || l.isOvertaken || l.call.limit > 0 }

// decide ends the call of a connection, unless it has ended or its reply arrives now.
func (l *link) decide(away *Unavailable) {
	if l.turn != nil && l.turn.err == nil {
		away.isSent = l.isSent.Load()
		l.turn.err = away
	}
}

// wake interrupts the wait for a reply. A write that waits is interrupted by the end of its
// connection.
func (l *link) wake() {
	if l.isSent.Load() {
		l.conn.Interrupt()
	} else {
		_ = l.conn.Close()
	}
}

// line has calls that wait for a place, in the order of arrival.
type line struct {
	first, last *turn
	length      int
}

func (q *line) push(t *turn) {
	t.line, t.previous, t.next = q, q.last, nil
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
	q.length++
}

func (q *line) remove(t *turn) {
	if t.previous == nil {
		q.first = t.next
	} else {
		t.previous.next = t.next
	}
	if t.next == nil {
		q.last = t.previous
	} else {
		t.next.previous = t.previous
	}
	t.line, t.previous, t.next = nil, nil, nil
	q.length--
}

// isUnwanted returns true if no call waits for a connection.
func (p *pool) isUnwanted() bool { return p.urgent.first == nil && p.line.first == nil }

// acquire returns a connection for a call. It waits in line for one.
func (n *node) acquire(t *turn, now time.Time) (*link, error) {
	n.mu.Lock()
	p := &n.pool
	if !t.hasEntered {
		if err := n.enter(t, now); err != nil {
			n.mu.Unlock()
			return nil, err
		}
		t.hasEntered = true
	}
	hasPlace := t.isUrgent || p.line.first == nil && p.inFlight < n.x.options.maxInFlight
	if last := len(p.idle) - 1; last >= 0 && hasPlace && p.urgent.first == nil {
		l := p.idle[last]
		p.idle = p.idle[:last]
		n.carry(l, t, now)
		n.mu.Unlock()
		return l, nil
	}
	if err := n.join(t, now); err != nil {
		n.mu.Unlock()
		return nil, err
	}
	n.mu.Unlock()
	select {
	case <-t.ready:
	case <-t.ctx.Done():
		n.giveUp(t)
	}
	if t.got == nil {
		return nil, t.err
	}
	return t.got, nil
}

// carry makes a connection carry the command of a call.
func (n *node) carry(l *link, t *turn, now time.Time) {
	run := n.clock.now(now)
	if !t.isUrgent {
		n.pool.inFlight++
		if now.Before(n.shortReplyUntil) {
			t.dueAt = min(t.dueAt, run+n.x.options.silence)
		}
	}
	if t.isProbe {
		n.probe = l
	}
	l.turn, l.call, l.isBusy, l.isUrgent, l.sentAt = t, t.call, true, t.isUrgent, run
	n.busy.push(l)
	t.got = l
}

// join puts a call in line, or returns the error of one that must not wait.
func (n *node) join(t *turn, now time.Time) error {
	p := &n.pool
	t.got, t.hasWaited = nil, true
	// A call that lacks only a connection is not in line, although it waits.
	spare := p.spare(n, now)
	t.isPressed = p.line.length >= spare
	if t.isPressed && n.x.known.deniesNow(t.call, now) {
		return errDeniedBefore
	}
	if err := p.refusal(now); err != nil {
		return err
	}
	if t.isUrgent {
		t.lineDueAt = t.dueAt
		p.urgent.push(t)
	} else {
		if p.line.length-spare >= n.x.options.maxWaiting {
			text := fmt.Sprintf("not sent: %d calls are in line", p.line.length-spare)
			return notSent(ReasonOverloaded, text)
		}
		n.setPatience(t, now)
		p.line.push(t)
	}
	p.dialMore(n, now)
	return nil
}

// setPatience sets the time for which a call stands in line.
func (n *node) setPatience(t *turn, now time.Time) {
	patience := n.x.options.timeout / 2
	if now.Before(n.shortLineUntil) {
		patience = min(patience, n.x.options.silence)
	}
	if t.call.limit > 0 {
		patience = t.limit
	}
	t.lineDueAt = n.clock.now(now) + min(patience, t.limit)
}

// lineDue returns the run time until which a call stands in line. The wait for the first dial has
// no bound but that of the dial.
func (p *pool) lineDue(n *node, t *turn) (time.Duration, bool) {
	switch {
	case !p.wasDialled:
		return 0, false
	case p.open > 0:
		return t.lineDueAt, true
	case t.call.limit > 0:
		return t.dueAt, true
	}
	return max(t.arrivedAt, p.lostAt) + n.x.options.silence, true
}

// giveUp takes a call whose context ended from the line.
func (n *node) giveUp(t *turn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.line != nil {
		t.line.remove(t)
		t.err = t.cancelled(false)
		return
	}
	// It got its turn at the same moment.
	<-t.ready
	if t.got != nil {
		n.free(t.got, time.Now())
		t.got, t.err = nil, t.cancelled(false)
	}
}

// endLine ends the calls in line for which a function returns an error.
func (p *pool) endLine(errOf func(t *turn) error) {
	for _, waiting := range []*line{&p.urgent, &p.line} {
		for t := waiting.first; t != nil; {
			next := t.next
			if err := errOf(t); err != nil {
				waiting.remove(t)
				t.err = err
				t.ready <- struct{}{}
			}
			t = next
		}
	}
}

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
		most += leaseSlots
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
	conn, err := n.x.dialOnce(ctx, n.name)
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
		n.answer()
	case !p.isCounted:
		p.isCounted = true
		n.breaker.fail(now)
	}
	if p.open == 0 {
		p.endLine(func(*turn) error { return err })
	}
}

func jitter() float64 { return 0.8 + 0.4*rand.Float64() }

// serve gives free connections to the calls in line. A call that is known to be denied ends.
func (p *pool) serve(n *node, now time.Time) {
	for len(p.idle) > 0 {
		t := p.urgent.first
		if t == nil {
			if t = p.line.first; t == nil || p.inFlight >= n.x.options.maxInFlight {
				return
			}
		}
		t.line.remove(t)
		if t.isPressed && n.x.known.deniesNow(t.call, now) {
			t.err = errDeniedBefore
		} else {
			last := len(p.idle) - 1
			n.carry(p.idle[last], t, now)
			p.idle = p.idle[:last]
		}
		t.ready <- struct{}{}
	}
}

// put gives a free connection to the calls in line, or keeps it.
func (p *pool) put(n *node, l *link, now time.Time) {
	if p.isClosed || l.isClosed || l.generation != p.generation {
		p.drop(n, l, now)
		return
	}
	p.idle = append(p.idle, l)
	p.serve(n, now)
}

// take takes the command from a connection.
func (p *pool) take(n *node, l *link) {
	if !l.isBusy {
		return
	}
	n.busy.remove(l)
	if !l.isUrgent {
		p.inFlight--
	}
	if n.probe == l {
		n.probe = nil
	}
	l.turn, l.call, l.isBusy, l.isOvertaken, l.isStale = nil, nil, false, false, false
	l.isSent.Store(false)
}

// drop closes a connection, unless it is closed. The calls in line may need another one.
func (p *pool) drop(n *node, l *link, now time.Time) {
	p.take(n, l)
	if l.isClosed {
		return
	}
	l.isClosed = true
	_ = l.conn.Close()
	if l.generation == p.generation {
		p.open--
		p.lostAt = n.clock.now(now)
	}
	p.dialMore(n, now)
	p.serve(n, now)
	if p.open == 0 && p.dialling == 0 {
		if err := p.refusal(now); err != nil {
			p.endLine(func(*turn) error { return err })
		}
	}
}

// dropOlder closes the idle connections that were last heard before a silent one was used: what
// silenced it may have silenced them.
func (p *pool) dropOlder(n *node, silent *link) {
	now := time.Now()
	for at := len(p.idle) - 1; at >= 0; at-- {
		if l := p.idle[at]; l.heardAt < silent.sentAt {
			p.idle = append(p.idle[:at], p.idle[at+1:]...)
			p.drop(n, l, now)
		}
	}
}

// retire closes the connections of a generation, also those that carry calls.
func (p *pool) retire(n *node, generation int, now time.Time) {
	if p.generation != generation {
		return
	}
	p.closeIdle(n, now)
	for l := n.busy.first; l != nil; {
		next := l.next
		if l.generation == generation {
			n.looked(l)
			p.take(n, l)
			l.isClosed = true
			_ = l.conn.Close()
		}
		l = next
	}
	n.noteIdle()
	n.x.refresh()
	p.dialMore(n, now)
}

// closeIdle begins another generation. Connections that carry a call close after it.
func (p *pool) closeIdle(n *node, now time.Time) {
	p.generation++
	p.open, p.lostAt = 0, n.clock.now(now)
	for _, l := range p.idle {
		l.isClosed = true
		_ = l.conn.Close()
	}
	p.idle = nil
}

// close closes the connections, and ends the calls that wait for one. If isNow is false,
// connections that carry a call close after it.
func (p *pool) close(n *node, isNow bool) {
	now := time.Now()
	p.isClosed = true
	if isNow {
		p.retire(n, p.generation, now)
		for l := n.busy.first; l != nil; l = n.busy.first {
			p.drop(n, l, now)
		}
	} else {
		p.closeIdle(n, now)
	}
	p.endLine(func(*turn) error { return p.refusal(now) })
}
