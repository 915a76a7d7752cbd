package throttle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
)

// pool has the connections to a node. The node's mutex guards it.
type pool struct {
	idle []*link
	// busy has the connections that carry a call.
	busy map[*link]bool
	// open is the number of connections of the current generation.
	open       int
	generation int
	urgent     []*waiter
	waiting    []*waiter
	dialling   int
	// isCounted says whether the dials under way have been counted as a failure.
	isCounted bool
	// dialAgainAt is the instant from which a dial is allowed. refused is why the last one failed.
	dialAgainAt time.Time
	refused     error
	isClosed    bool
}

// link is a connection of a pool.
type link struct {
	conn       Conn
	generation int
	dialTook   time.Duration
	// uses is the number of calls that it carried. The last reply was read at answeredAt.
	uses       int
	answeredAt time.Time
}

// waiter is a call that waits for a connection.
type waiter struct{ ready chan handed }

type handed struct {
	link *link
	err  error
}

// acquire returns a connection, and whether the call waited for it.
func (n *node) acquire(t *turn) (l *link, waited bool, err error) {
	n.mu.Lock()
	p := &n.pool
	if last := len(p.idle) - 1; last >= 0 {
		l, p.idle = p.idle[last], p.idle[:last]
		p.busy[l] = true
		n.mu.Unlock()
		return l, false, nil
	}
	if err := p.refusal(); err != nil {
		n.mu.Unlock()
		return nil, false, err
	}
	w := &waiter{make(chan handed, 1)}
	if t.isUrgent {
		p.urgent = append(p.urgent, w)
	} else {
		p.waiting = append(p.waiting, w)
	}
	p.dialMore(n)
	n.mu.Unlock()
	select {
	case got := <-w.ready:
		return got.link, true, got.err
	case <-t.ctx.Done():
		return nil, true, n.giveUp(t, w)
	}
}

// giveUp returns the error of a call whose deadline passed while it waited for a connection.
func (n *node) giveUp(t *turn, w *waiter) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.pool
	select {
	case got := <-w.ready:
		if got.err != nil {
			return got.err
		}
		p.put(n, got.link)
	default:
		isOther := func(one *waiter) bool { return one == w }
		p.urgent = slices.DeleteFunc(p.urgent, isOther)
		p.waiting = slices.DeleteFunc(p.waiting, isOther)
	}
	late := t.late(false)
	if outcomeOf(late) != failed {
		return late
	}
	if n.answers > t.answers {
		return notSent(ReasonOverloaded, "not sent: no connection was free in time")
	}
	if p.dialling > 0 {
		if p.isCounted {
			return notSent(ReasonTimeout, late.Error())
		}
		p.isCounted = true
	}
	n.leave(t, late)
	return late
}

// refusal returns the error of a call that needs a dial while none may begin.
func (p *pool) refusal() error {
	if p.isClosed {
		return notSent(ReasonConnection, "not sent: the connections to the node are closed")
	}
	left := time.Until(p.dialAgainAt)
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
func (p *pool) dialMore(n *node) {
	if p.isClosed || time.Now().Before(p.dialAgainAt) {
		return
	}
	most, ramp := openMax, dialsMax
	if len(p.urgent) > 0 {
		most += leaseSlots
	}
	if p.open == 0 {
		ramp = 1
	}
	for p.dialling < min(len(p.urgent)+len(p.waiting), ramp, most-p.open) {
		if p.dialling == 0 {
			p.isCounted = false
		}
		p.dialling++
		n.x.tasks.run(n.dial)
	}
}

// dial opens a connection for the calls that wait.
func (n *node) dial(ctx context.Context) {
	began := time.Now()
	ctx, stop := context.WithTimeout(ctx, max(dialMin, n.x.options.timeout))
	defer stop()
	conn, err := n.x.dialOnce(ctx, n.name)
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.pool
	p.dialling--
	if err == nil {
		p.dialAgainAt, p.refused = time.Time{}, nil
		p.open++
		p.put(n, &link{conn: conn, generation: p.generation, dialTook: time.Since(began)})
		p.dialMore(n)
		return
	}
	// Many processes lose the same server at once and should not all dial it at once.
	pause := time.Duration(float64(n.x.options.breakerPause) * n.x.jitter())
	p.dialAgainAt, p.refused = began.Add(pause), err
	p.fail(err)
}

func jitter() float64 { return 0.8 + 0.4*rand.Float64() }

// fail ends the calls that wait. They are one failure.
func (p *pool) fail(err error) {
	for _, w := range slices.Concat(p.urgent, p.waiting) {
		var away *Unavailable
		if errors.As(err, &away) && p.isCounted {
			quiet := *away
			quiet.isQuiet = true
			err = &quiet
		}
		p.isCounted = true
		w.ready <- handed{err: err}
	}
	p.urgent, p.waiting = nil, nil
}

// put gives a connection to the call that has waited longest, or keeps it.
func (p *pool) put(n *node, l *link) {
	if p.isClosed || l.generation != p.generation {
		p.drop(n, l)
		return
	}
	for _, waiting := range []*[]*waiter{&p.urgent, &p.waiting} {
		if len(*waiting) > 0 {
			w := (*waiting)[0]
			*waiting = (*waiting)[1:]
			p.busy[l] = true
			w.ready <- handed{link: l}
			return
		}
	}
	delete(p.busy, l)
	p.idle = append(p.idle, l)
}

// drop closes a connection that carries no call.
func (p *pool) drop(n *node, l *link) {
	delete(p.busy, l)
	_ = l.conn.Close()
	if l.generation == p.generation {
		p.open--
	}
	p.dialMore(n)
	if p.open == 0 && p.dialling == 0 {
		if err := p.refusal(); err != nil {
			p.isCounted = true
			p.fail(err)
		}
	}
}

// retire closes the connections of a generation, also those that carry calls.
func (p *pool) retire(n *node, generation int) {
	if p.generation != generation {
		return
	}
	p.closeIdle()
	for l := range p.busy {
		_ = l.conn.Close()
	}
	n.x.refresh()
	p.dialMore(n)
}

// closeIdle begins another generation. Connections that carry a call close after it.
func (p *pool) closeIdle() {
	p.generation++
	p.open = 0
	for _, l := range p.idle {
		_ = l.conn.Close()
	}
	p.idle = nil
}

// close closes the connections, and ends the calls that wait for one. If isNow is false,
// connections that carry a call close after it.
func (p *pool) close(n *node, isNow bool) {
	p.isClosed = true
	if isNow {
		p.retire(n, p.generation)
	} else {
		p.closeIdle()
	}
	p.fail(p.refusal())
}
