package throttle

import (
	"fmt"
	"time"
)

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

// pushFirst puts a call before all others.
func (q *line) pushFirst(t *turn) {
	t.line, t.previous, t.next = q, nil, q.first
	if q.first == nil {
		q.last = t
	} else {
		q.first.previous = t
	}
	q.first = t
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
		if t.call.isRenewal {
			p.urgent.pushFirst(t)
		} else {
			p.urgent.push(t)
		}
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
