package throttle

import (
	"sync/atomic"
	"time"
)

// openMax is the maximum number of connections to a node; renewals and ends have one more per slot.
const openMax = 64

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
	uses       int
	hasReplied bool
	heardAt    time.Duration
	isClosed   bool

	// turn is the call that waits for the reply; nil if its caller has gone.
	turn             *turn
	call             *call
	isBusy, isUrgent bool
	previous, next   *link
	// sentAt is the run time of sending. isSent says whether the command was written.
	sentAt time.Duration
	isSent atomic.Bool
	// The reply to a later command arrived at the run time overtakenAt, on another connection.
	isOvertaken bool
	overtakenAt time.Duration
	// mustLook says that the node waits for what has arrived here; isDoomed, that it is silent
	// alone; isStale, that it carries the command of a probe that got no reply in time.
	mustLook, isDoomed, isStale bool
	// interrupt is the method value of the connection, created once.
	interrupt func()
}

// isExempt returns true for a command that is no sign of silence. The connection of one that was
// overtaken is closed alone.
func (l *link) isExempt() bool { return l.isStale || l.isOvertaken || l.call.limit > 0 }

// decide ends the call of a connection, unless it has ended or its reply arrives now.
func (l *link) decide(unavailable *Unavailable) {
	if l.turn != nil && l.turn.err == nil {
		unavailable.isSent = l.isSent.Load()
		l.turn.err = unavailable
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

// retire closes the connections of a generation, also those that carry calls, and older ones that
// still do.
func (p *pool) retire(n *node, generation int, now time.Time) {
	if p.generation != generation {
		return
	}
	p.closeIdle(n, now)
	for l := n.busy.first; l != nil; {
		next := l.next
		if l.generation <= generation {
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

// hasLeft returns true if no call waits for a node that is no primary any more.
func (n *node) hasLeft() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pool.isClosed && n.busy.first == nil
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
