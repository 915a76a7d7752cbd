package throttle

import "time"

// isSilent returns true if nothing was heard for too long since the oldest unanswered command.
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

// fallSilent ends the calls in flight to a node that does not answer. The command of a probe stays
// until the next probe: its reply would close the breaker.
func (n *node) fallSilent(now time.Time) {
	for l := n.busy.first; l != nil; l = l.next {
		l.decide(&Unavailable{
			Reason: ReasonTimeout, message: "no answer: the server is silent", isSent: true,
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
