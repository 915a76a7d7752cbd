package throttle

import "time"

const (
	// tickLate is the time by which a tick may be late and still count in full. A process that did
	// not run for longer has not waited for longer.
	tickLate = 10 * time.Millisecond
	// ticksInSilence is the number of ticks in the silence of a node.
	ticksInSilence = 4
)

// clock counts the time in which this process ran while calls waited. The node's mutex guards it.
type clock struct {
	timer     *time.Timer
	isRunning bool
	// run is the run time at the instant at. The next tick is planned then for a time later.
	run     time.Duration
	at      time.Time
	planned time.Duration
}

// now returns the run time at an instant.
func (c *clock) now(at time.Time) time.Duration {
	if !c.isRunning {
		return c.run
	}
	return c.run + max(0, min(at.Sub(c.at), c.planned+tickLate))
}

// tickLength returns the longest time between two ticks. No deadline is shorter.
func (n *node) tickLength() time.Duration { return n.x.options.silence / ticksInSilence }

// wait starts the ticks, unless they run.
func (n *node) wait(now time.Time) {
	if !n.clock.isRunning {
		n.clock.isRunning, n.clock.at = true, now
		n.plan(n.tickLength())
	}
}

// plan plans the next tick.
func (n *node) plan(in time.Duration) {
	n.clock.planned = in
	if n.clock.timer == nil {
		n.clock.timer = n.x.afterFunc(in, n.tick)
	} else {
		n.clock.timer.Reset(in)
	}
}

// tick ends what has waited for too long. It stops when nothing waits.
func (n *node) tick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	n.clock.run, n.clock.at = n.clock.now(now), now
	if n.busy.first == nil && n.pool.isUnwanted() {
		n.clock.isRunning = false
		return
	}
	switch {
	case n.looks > 0:
	case n.isSilent(now):
		n.look(now)
	default:
		n.expire(now)
	}
	n.pool.dialMore(n, now)
	n.plan(n.untilNext())
}

// untilNext returns the time until the next tick.
func (n *node) untilNext() time.Duration {
	run := n.clock.run
	next := run + n.tickLength()
	note := func(due time.Duration) {
		if due > run {
			next = min(next, due)
		}
	}
	for l := n.busy.first; l != nil; l = l.next {
		if !l.isExempt() {
			note(max(n.heard, l.sentAt) + n.x.options.silence)
		}
		if l.isOvertaken {
			note(l.overtakenAt + n.x.options.silence)
		}
		if l.turn != nil {
			note(l.turn.dueAt)
		}
	}
	for _, line := range []*line{&n.pool.urgent, &n.pool.line} {
		for t := line.first; t != nil; t = t.next {
			if due, ok := n.pool.lineDue(n, t); ok {
				note(due)
			}
		}
	}
	return next - run
}

// expire ends each call whose own time is over, and closes the connections that are silent alone.
func (n *node) expire(now time.Time) {
	run := n.clock.now(now)
	for l := n.busy.first; l != nil; l = l.next {
		if l.isOvertaken && run >= l.overtakenAt+n.x.options.silence {
			l.isDoomed = true
			l.decide(&Unavailable{
				Reason: ReasonTimeout, message: "no reply: the connection is silent", isSent: true,
			})
			l.wake()
		}
		t := l.turn
		if t == nil || t.err != nil || run < t.dueAt && now.Before(t.wallEnd) {
			continue
		}
		l.decide(t.lateReply())
		if t.isMeasure() {
			n.shortReplyUntil = now.Add(n.x.options.breakerPause)
		}
		l.wake()
	}
	n.pool.endLine(func(t *turn) error {
		due, ok := n.pool.lineDue(n, t)
		if !ok || run < due && now.Before(t.wallEnd) {
			return nil
		}
		if n.pool.open == 0 {
			return notSent(ReasonConnection, "not sent: not connected in time")
		}
		if t.isMeasure() {
			n.shortLineUntil = now.Add(n.x.options.breakerPause)
		}
		return notSent(ReasonOverloaded, "not sent: no connection was free in time")
	})
}
