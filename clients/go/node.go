package throttle

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// renewalSlots and endSlots are the numbers of renewals and of ends in flight to a node. The
	// in-flight bound does not count them. A renewal waits for no end: its permit would expire.
	renewalSlots = 8
	endSlots     = 32
)

// node is one server, or one primary of a cluster.
type node struct {
	name string
	x    *exchange
	// renewals and ends have a value for each slot that is taken.
	renewals, ends chan struct{}

	mu      sync.Mutex
	clock   clock
	breaker breaker
	pool    pool
	// heard is the run time at which the last reply was read.
	heard time.Duration
	// busy has the connections that carry a command, in the order of sending.
	busy busyLinks
	// looks is the number of connections that read what has arrived before a silence is declared.
	looks int
	// Short patience in line and for replies lasts until these instants.
	shortLineUntil, shortReplyUntil time.Time
	// readers is the number of calls that wait for the slot map; of the node without a name.
	readers int
	// probe is the connection of a probe without a reply. staleGeneration is that of a silent
	// probe, which the next probe retires; 0 if there is none.
	probe           *link
	staleGeneration int
	// closing is closed when no caller waits for a reply, after the limiter's Close began.
	closing chan struct{}
}

// enter lets a call pass to the node, or returns the error of one that does not.
func (n *node) enter(t *turn, now time.Time) error {
	n.wait(now)
	if n.x.isClosing.Load() && !t.call.isLast {
		return ErrClosed
	}
	t.arrivedAt = n.clock.now(now)
	t.dueAt, t.wallEnd = t.arrivedAt+t.limit, now.Add(wallFactor*t.limit)
	switch {
	case t.isFree || !n.breaker.isTripped():
	case t.isUrgent && n.pool.open > 0:
	case n.isOpen(now):
		return notSent(ReasonCircuit, "not sent: the circuit breaker is open")
	case !t.isUrgent:
		n.beginProbe(t, now)
	}
	return nil
}

// isOpen returns true if the breaker stops calls. A probe could not begin before the next dial.
func (n *node) isOpen(now time.Time) bool {
	isDialLater := n.pool.open == 0 && now.Before(n.pool.dialAgainAt)
	return n.breaker.isOpen(now) || n.breaker.isTripped() && isDialLater
}

// beginProbe makes a call the probe. It uses a new connection if the last probe got no reply.
func (n *node) beginProbe(t *turn, now time.Time) {
	t.isProbe = true
	n.breaker.isProbing, n.breaker.probeBegan = true, now
	if n.staleGeneration != 0 {
		n.pool.retire(n, n.staleGeneration, now)
		n.staleGeneration = 0
	}
}

// leave ends a probe at its node.
func (t *turn) leave() {
	if !t.isProbe {
		return
	}
	t.node.mu.Lock()
	defer t.node.mu.Unlock()
	t.isProbe, t.node.breaker.isProbing = false, false
}

// hear notes a reply. The commands that were sent before it on other connections are overtaken.
func (n *node) hear(l *link, now time.Time) {
	run := n.clock.now(now)
	n.heard, l.heardAt, l.hasReplied = run, run, true
	for other := l.previous; other != nil && !other.isOvertaken; other = other.previous {
		if other.sentAt < l.sentAt {
			other.isOvertaken, other.overtakenAt = true, run
		}
	}
}

// noteFinalReply notes a decision or a rejection.
func (n *node) noteFinalReply() {
	n.breaker.failures = 0
	n.staleGeneration = 0
}

// receive returns the reply of a connection, and false if the call has ended without one. A caller
// that leaves hands the connection to a goroutine, which reads the reply.
func (n *node) receive(l *link, t *turn) (reply any, err error, isOpen bool) {
	for {
		reply, err = l.conn.Receive()
		if err != ErrInterrupted {
			return reply, err, true
		}
		if n.isOver(l, t) {
			return nil, nil, false
		}
	}
}

func isReply(err error) bool {
	if err == nil {
		return true
	}
	var said ServerError
	return errors.As(err, &said)
}

// isOver returns true if an interrupted call has ended. The turn is nil if its caller has gone.
func (n *node) isOver(l *link, t *turn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looked(l)
	if t != nil && t.err == nil && t.ctx.Err() != nil {
		t.err = t.cancelled(true)
	}
	switch {
	case l.isDoomed && !l.isClosed:
		n.pool.dropOlder(n, l)
		n.pool.drop(n, l, time.Now())
	case l.isClosed:
	case t == nil || t.err == nil:
		return false
	default:
		n.drain(l)
	}
	if t != nil && t.err == nil {
		// Another call closed the connection while this one was interrupted.
		t.err = lost(errors.New("the client closed it"))
	}
	return true
}

// drain leaves a connection to a goroutine that reads the reply of its command.
func (n *node) drain(l *link) {
	l.turn = nil
	l.call.late.begin()
	n.noteIdle()
	sent := l.call
	if !n.x.tasks.run(func(context.Context) { n.finish(l, sent) }) {
		n.pool.drop(n, l, time.Now())
		sent.late.end(true)
	}
}

// finish reads the reply of a command whose caller has gone.
func (n *node) finish(l *link, sent *call) {
	reply, err, isOpen := n.receive(l, nil)
	if isOpen {
		reply, err = n.settle(l, nil, sent, reply, err)
	} else {
		err = lost(errors.New("the connection is silent"))
	}
	n.x.onLate(sent, reply, err)
}

// settle returns the reply of a command, or its error, and frees or closes its connection.
// It notes the reply for its keys first, because that may deny the next call in line.
func (n *node) settle(l *link, t *turn, c *call, reply any, err error) (any, error) {
	now := time.Now()
	if err == nil && c.isKnowable {
		c.decide(reply)
		n.x.known.note(c, now)
	}
	if t != nil {
		t.readAt = now
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !isReply(err) {
		return nil, n.lose(l, t, err, now)
	}
	n.hear(l, now)
	if err == nil {
		n.noteFinalReply()
	} else {
		err = n.noteError(l, n.x.classified(err), now)
	}
	n.free(l, now)
	return reply, err
}

// noteError notes an error reply. It returns the error.
func (n *node) noteError(l *link, known error, now time.Time) error {
	var unavailable *Unavailable
	isOld := beginsWith(known, "READONLY", "MASTERDOWN")
	switch {
	case !errors.As(known, &unavailable):
		n.noteFinalReply()
	case isOld && l.generation != n.pool.generation:
		// The failure of its generation is counted.
	case n.x.router == nil || !beginsWith(known, "MOVED", "ASK"):
		n.breaker.fail(now)
	}
	if isOld || beginsWith(known, "NOAUTH", "WRONGPASS") {
		n.pool.retire(n, l.generation, now)
	}
	return known
}

// free returns a connection that carries no command any more.
func (n *node) free(l *link, now time.Time) {
	n.pool.take(n, l)
	n.looked(l)
	n.noteIdle()
	n.pool.put(n, l, now)
}

// lose drops a lost connection, and returns the error of its call. It is a failure only if no reply
// had arrived on the connection: a proxy that restarts is no outage.
func (n *node) lose(l *link, t *turn, err error, now time.Time) error {
	wasClosed := l.isClosed
	n.looked(l)
	n.pool.drop(n, l, now)
	n.noteIdle()
	if t != nil && t.err != nil {
		return t.err
	}
	if !l.hasReplied && !wasClosed {
		n.breaker.fail(now)
	}
	return lost(err)
}

func lost(err error) error {
	return &Unavailable{
		Reason: ReasonConnection, message: "the connection was lost: " + err.Error(), err: err,
		isSent: !errors.Is(err, ErrNotSent),
	}
}

// noteIdle notifies a Close that no caller waits for a reply any more.
func (n *node) noteIdle() {
	if n.closing == nil {
		return
	}
	for l := n.busy.first; l != nil; l = l.next {
		if l.turn != nil {
			return
		}
	}
	close(n.closing)
	n.closing = nil
}

// shut ends the calls in line, and returns a channel that is closed when no caller waits for a
// reply.
func (n *node) shut() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pool.endLine(func(t *turn) error {
		if t.call.isLast {
			return nil
		}
		return ErrClosed
	})
	idle := make(chan struct{})
	n.closing = idle
	n.noteIdle()
	return idle
}

// notSent returns the error of a call that was not sent.
func notSent(reason Reason, text string) *Unavailable {
	return &Unavailable{Reason: reason, message: text}
}

// busyLinks are the connections that carry a command, in the order of sending.
type busyLinks struct{ first, last *link }

func (b *busyLinks) push(l *link) {
	l.previous, l.next = b.last, nil
	if b.last == nil {
		b.first = l
	} else {
		b.last.next = l
	}
	b.last = l
}

func (b *busyLinks) remove(l *link) {
	if l.previous == nil {
		b.first = l.next
	} else {
		l.previous.next = l.next
	}
	if l.next == nil {
		b.last = l.previous
	} else {
		l.next.previous = l.previous
	}
	l.previous, l.next = nil, nil
}

// isSilent returns true if nothing was heard for too long since the oldest command without a reply.
func (n *node) isSilent(now time.Time) bool {
	for l := n.busy.first; l != nil; l = l.next {
		if !l.isExempt() {
			return n.clock.now(now) >= max(n.heard, l.sentAt)+n.x.options.silence
		}
	}
	return false
}

// look makes every connection read what has arrived, before the node counts as silent.
func (n *node) look(now time.Time) {
	for l := n.busy.first; l != nil; l = l.next {
		if l.isSent.Load() {
			l.mustLook = true
			n.looks++
			l.conn.Interrupt()
		}
	}
	if n.looks == 0 {
		n.judge(now)
	}
}

// looked notes that a connection has read what had arrived.
func (n *node) looked(l *link) {
	if !l.mustLook {
		return
	}
	l.mustLook = false
	if n.looks--; n.looks == 0 {
		n.judge(time.Now())
	}
}

// judge ends what has waited for too long after all connections have looked.
func (n *node) judge(now time.Time) {
	if n.isSilent(now) {
		n.fallSilent(now)
	}
	n.expire(now)
}

// fallSilent ends the calls in flight to a node that does not reply. The command of a probe stays
// until the next probe: its reply would close the breaker.
func (n *node) fallSilent(now time.Time) {
	for l := n.busy.first; l != nil; l = l.next {
		l.decide(&Unavailable{
			Reason: ReasonTimeout, message: "no reply: the server is silent", isSent: true,
		})
	}
	if n.probe == nil {
		n.breaker.fail(now)
		n.pool.retire(n, n.pool.generation, now)
	} else {
		// Its caller may have gone.
		n.breaker.fail(now)
		n.breaker.reopen()
		n.probe, n.staleGeneration = nil, n.pool.generation
		for l := n.busy.first; l != nil; l = l.next {
			l.isStale = true
			l.wake()
		}
	}
	run := n.clock.now(now)
	n.pool.endLine(func(t *turn) error {
		if run-t.arrivedAt < n.x.options.silence {
			return nil
		}
		return &Unavailable{Reason: ReasonTimeout, message: "not sent: the server is silent"}
	})
}
