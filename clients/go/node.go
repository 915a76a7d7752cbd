package throttle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// leaseSlots is the number of renewals and ends in flight to a node. The in-flight bound does not
// count them.
const leaseSlots = 8

// node is one server, or one primary of a cluster.
type node struct {
	name string
	x    *exchange
	// slots are those of renewals and ends.
	slots chan struct{}

	mu       sync.Mutex
	breaker  breaker
	inFlight int
	// entered is the number of calls so far. failedThrough is that number at the last failure: a
	// failure of one of these calls is part of that one.
	entered, failedThrough uint64
	// answers is the number of replies so far.
	answers uint64
	pool    pool
}

// turn is a call to a node, until its end.
type turn struct {
	// ctx ends at the deadline. caller is the context of the caller.
	ctx, caller context.Context
	deadline    time.Time
	// isCallers says whether the deadline is the caller's own, which is the earlier one.
	isCallers bool
	began     time.Time
	// isUrgent says whether the call renews or ends what is held.
	isUrgent bool

	node    *node
	number  uint64
	answers uint64
	isProbe bool
	isOver  bool
	// isRedirected says whether another node redirected the call.
	isRedirected bool
}

// enter lets a call pass to the node, or returns the error of one that does not.
func (n *node) enter(t *turn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	isProbe := false
	switch {
	case n.breaker.isOpen():
		if !t.isUrgent || n.pool.open == 0 {
			return notSent(ReasonCircuit, "not sent: the circuit breaker is open")
		}
	case !t.isUrgent && n.inFlight >= n.x.options.maxInFlight:
		text := fmt.Sprintf("not sent: %d calls are in flight", n.inFlight)
		return notSent(ReasonOverloaded, text)
	default:
		isProbe = n.breaker.enter()
	}
	n.admit(t)
	t.isProbe = isProbe
	return nil
}

// admit counts a call that goes to the node.
func (n *node) admit(t *turn) {
	n.entered++
	if !t.isUrgent {
		n.inFlight++
	}
	t.node, t.number, t.answers, t.isOver, t.isProbe = n, n.entered, n.answers, false, false
}

// moveTo counts a call for another node. The node that redirected it has answered.
func (t *turn) moveTo(other *node) {
	t.leave(nil)
	other.mu.Lock()
	defer other.mu.Unlock()
	other.admit(t)
}

// leave ends the call at its node.
func (t *turn) leave(err error) {
	t.node.mu.Lock()
	defer t.node.mu.Unlock()
	t.node.leave(t, err)
}

// leave ends a call, once. Calls that fail together are one failure.
func (n *node) leave(t *turn, err error) {
	if t.isOver {
		return
	}
	t.isOver = true
	if !t.isUrgent {
		n.inFlight--
	}
	ended := outcomeOf(err)
	if ended == failed {
		if isLoss(err) && t.number <= n.failedThrough {
			ended = neither
		} else {
			n.failedThrough = n.entered
		}
	}
	n.breaker.ended(ended, t.isProbe)
}

func outcomeOf(err error) outcome {
	if err == nil {
		return answered
	}
	var rejected *CommandRejected
	var away *Unavailable
	switch {
	case errors.As(err, &rejected):
		return answered
	case errors.As(err, &away) && !away.isQuiet:
		return failed
	}
	return neither
}

func isLoss(err error) bool {
	var away *Unavailable
	return errors.As(err, &away) &&
		(away.Reason == ReasonTimeout || away.Reason == ReasonConnection)
}

// notSent returns the error of a call that is no failure of the server.
func notSent(reason Reason, text string) *Unavailable {
	return &Unavailable{Reason: reason, message: text, isQuiet: true}
}

// late returns the error of a call whose context ended. The end of the caller's own context says
// nothing about the server.
func (t *turn) late(isSent bool) error {
	if err := t.caller.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &Unavailable{
		Reason: ReasonTimeout, message: "no answer before the deadline", isSent: isSent,
		isQuiet: t.isCallers,
	}
}

// transact sends a command once over a connection of the call's node.
func (t *turn) transact(words []string, isAsking bool) (any, error) {
	n := t.node
	for {
		l, waited, err := n.acquire(t)
		if err != nil {
			return nil, err
		}
		if waited && l.uses == 0 && time.Until(t.deadline) < l.dialTook {
			n.release(l)
			return nil, &Unavailable{
				Reason:  ReasonTimeout,
				message: fmt.Sprintf("not sent: the dial took %v", l.dialTook),
			}
		}
		reply, err := l.send(t.ctx, words, isAsking)
		if errors.Is(err, ErrNotSent) && (l.uses > 0 || !waited) && t.ctx.Err() == nil {
			n.lose(l)
			continue
		}
		l.uses++
		return n.settle(t, l, reply, err)
	}
}

// send sends a command, after ASKING if its slot is moving to the node.
func (l *link) send(ctx context.Context, words []string, isAsking bool) (any, error) {
	if isAsking {
		if reply, err := l.conn.Do(ctx, []string{"ASKING"}); err != nil {
			return reply, err
		}
	}
	return l.conn.Do(ctx, words)
}

// settle returns the reply of a command, or its error, and keeps or closes its connection.
func (n *node) settle(t *turn, l *link, reply any, err error) (any, error) {
	var said ServerError
	isReply := err == nil || errors.As(err, &said)
	n.mu.Lock()
	defer n.mu.Unlock()
	if isReply {
		n.answers++
		t.answers++
		l.answeredAt = time.Now()
		n.pool.put(n, l)
		if err == nil {
			return reply, nil
		}
		known := classified(said)
		if beginsWith(known, "READONLY", "MASTERDOWN", "NOAUTH", "WRONGPASS") {
			n.pool.retire(n, l.generation)
		}
		return nil, known
	}
	n.pool.drop(n, l)
	isLate := !time.Now().Before(t.deadline)
	if t.caller.Err() != nil || isLate {
		late := t.late(true)
		var away *Unavailable
		if errors.As(late, &away) && l.answeredAt.After(t.began) {
			// The connection answered while this call waited for it, so it is slow and not silent.
			away.isQuiet = true
		}
		if outcomeOf(late) == failed {
			// In one step, so that the calls that end with it are one failure with it.
			n.leave(t, late)
			n.pool.retire(n, l.generation)
		}
		return nil, late
	}
	return nil, &Unavailable{
		Reason: ReasonConnection, message: "the connection was lost: " + err.Error(), err: err,
		isSent: !errors.Is(err, ErrNotSent),
	}
}

func (n *node) release(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pool.put(n, l)
}

func (n *node) lose(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pool.drop(n, l)
}
