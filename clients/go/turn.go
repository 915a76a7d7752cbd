package throttle

import (
	"context"
	"errors"
	"time"
)

// wallFactor is the number of time-outs after which a call ends by the clock, also if the process
// hardly ran.
const wallFactor = 3

// turn is a call to a node, until its end. The node's mutex guards it while it waits.
type turn struct {
	// ctx is that of the caller.
	ctx  context.Context
	call *call
	// limit is the time of the call in all.
	limit time.Duration
	// readAt is the instant at which the clock was last read.
	readAt time.Time
	// isUrgent says whether the call renews or ends what is held. isFree says whether it is part of
	// another call, so that no breaker stops it.
	isUrgent, isFree bool

	node       *node
	hasEntered bool
	isProbe    bool
	// hasWaited says whether the call waited for a connection; isPressed, that it stood in line.
	hasWaited, isPressed bool
	// isRedirected says whether another node redirected the call.
	isRedirected bool
	// arrivedAt, dueAt and lineDueAt are run times of the node: the arrival, the end of the call,
	// and that of its wait in line. It ends at wallEnd by the clock.
	arrivedAt, dueAt, lineDueAt time.Duration
	wallEnd                     time.Time

	// line is the line in which the call stands, otherwise nil. Its end is sent to ready: got is
	// the connection, or err says why there is none.
	line           *line
	previous, next *turn
	ready          chan struct{}
	got            *link
	// err ends the call.
	err error
}

// newTurn begins a call.
func (x *exchange) newTurn(ctx context.Context, c *call) *turn {
	t, _ := x.turns.Get().(*turn)
	if t == nil {
		t = &turn{ready: make(chan struct{}, 1)}
	}
	*t = turn{
		ctx: ctx, call: c, ready: t.ready, limit: x.options.timeout, readAt: c.start.at,
	}
	if t.readAt.IsZero() {
		t.readAt = time.Now()
	}
	if c.limit > 0 {
		t.limit = c.limit
	}
	if budget := c.budget(); budget != nil {
		t.limit = min(t.limit, budget.left)
	}
	return t
}

// end ends a turn, which nothing else refers to any more.
func (x *exchange) end(t *turn) {
	t.ctx, t.call, t.node, t.got, t.err = nil, nil, nil, nil, nil
	x.turns.Put(t)
}

// moveTo continues a call at another node. The node that redirected it has replied.
func (t *turn) moveTo(other *node) {
	t.leave()
	t.limit, t.readAt = t.left(), time.Now()
	t.node, t.hasEntered, t.isFree = other, false, true
}

// left returns the rest of the call's time.
func (t *turn) left() time.Duration {
	if !t.hasEntered {
		return t.limit
	}
	t.node.mu.Lock()
	defer t.node.mu.Unlock()
	return max(0, t.arrivedAt+t.limit-t.node.clock.now(time.Now()))
}

// cancelled returns the error of a call whose context ended. The end of the caller's own context
// says nothing about the server.
func (t *turn) cancelled(isSent bool) error {
	if err := t.ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &Unavailable{
		Reason: ReasonTimeout, message: "no reply before the caller's deadline", isSent: isSent,
		isOwn: true,
	}
}

// isMeasure returns true for a call whose late end shortens the patience of others. That of Ready
// has a time of its own, and decides nothing.
func (t *turn) isMeasure() bool { return !t.isUrgent && t.call.limit == 0 }

// lateReply returns the error of a call whose reply is late, although the node replies to others.
func (t *turn) lateReply() *Unavailable {
	if t.call.limit > 0 {
		return &Unavailable{
			Reason: ReasonTimeout, message: "connected, logged in, no reply to " + t.call.words[0],
		}
	}
	return &Unavailable{Reason: ReasonOverloaded, message: "no reply before the deadline"}
}

// transact sends a command once over a connection of the call's node.
func (t *turn) transact(words []string, isAsking bool) (any, error) {
	n := t.node
	for {
		l, err := n.acquire(t, t.readAt)
		if err != nil {
			return nil, err
		}
		isFresh := l.uses == 0 && t.hasWaited
		l.uses++
		err = l.send(words, isAsking)
		if errors.Is(err, ErrNotSent) && !isFresh && n.isRepeated(l, t) {
			continue
		}
		if err != nil {
			return n.settle(l, t, t.call, nil, err)
		}
		t.call.isSent = true
		reply, err, isOpen := t.await(n, l)
		if !isOpen {
			return nil, t.err
		}
		return n.settle(l, t, t.call, reply, err)
	}
}

// await waits for the reply of a command.
func (t *turn) await(n *node, l *link) (any, error, bool) {
	if t.ctx.Done() == nil {
		return n.receive(l, t)
	}
	// The function may still run when the connection carries another call, which then looks for
	// its reply once more.
	stop := context.AfterFunc(t.ctx, l.interrupt)
	defer stop()
	return n.receive(l, t)
}

// isRepeated drops a connection that had closed while it was idle. It returns false if the call has
// ended meanwhile.
func (n *node) isRepeated(l *link, t *turn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.err != nil || t.ctx.Err() != nil {
		return false
	}
	t.readAt = time.Now()
	n.looked(l)
	n.pool.drop(n, l, t.readAt)
	return true
}

// send sends a command, after ASKING if its slot is moving to the node.
func (l *link) send(words []string, isAsking bool) error {
	if isAsking {
		if err := l.sendAsking(); err != nil {
			return err
		}
	}
	err := l.conn.Send(words)
	if err == nil {
		l.isSent.Store(true)
	}
	return err
}

// sendAsking sends ASKING and reads its reply, which does not matter: that of the command does.
func (l *link) sendAsking() error {
	err := l.conn.Send([]string{"ASKING"})
	if err != nil {
		return err
	}
	err = ErrInterrupted
	for err == ErrInterrupted {
		_, err = l.conn.Receive()
	}
	if isReply(err) {
		return nil
	}
	return err
}
