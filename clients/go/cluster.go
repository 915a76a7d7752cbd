package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mapReading is one reading of the slot map, for all calls that wait for it.
type mapReading struct {
	ended chan struct{}
	err   error
	// isCounted says whether it was a failure. The mutex of the node without a name guards it.
	isCounted bool
}

// locate returns the node of a key. In a cluster it may have to read the slot map first.
func (x *exchange) locate(t *turn, key string) (*node, error) {
	if x.router == nil {
		return x.single, nil
	}
	if name, ok := x.router.Node(key); ok {
		return x.named(name), nil
	}
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	unknown := x.named("")
	if err := unknown.beginReading(t); err != nil {
		t.leave()
		return nil, err
	}
	defer unknown.leaveReading()
	r, patience := x.read(unknown, t)
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-r.ended:
	case <-t.ctx.Done():
		t.leave()
		return nil, t.cancelled(false)
	case <-late:
		t.leave()
		return nil, notSent(ReasonConnection, "not sent: no slot map in time")
	}
	name, ok := x.router.Node(key)
	unknown.endReading(t, r, ok)
	switch {
	case ok:
		t.hasEntered = false
		return x.named(name), nil
	case r.err != nil:
		return nil, r.err
	}
	return nil, &Unavailable{
		Reason: ReasonConnection, message: "no node serves the slot of the key",
	}
}

// read returns the reading of the slot map that is under way, or begins one, and the longest time
// for which a call waits for it. That of the first, 0, ends with the reading, as with a first dial.
func (x *exchange) read(unknown *node, t *turn) (*mapReading, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	patience := time.Duration(0)
	if x.wasRead {
		patience = min(t.limit, x.options.silence)
	}
	if x.reading != nil {
		return x.reading, patience
	}
	r := &mapReading{ended: make(chan struct{}), err: ErrClosed}
	x.reading = r
	isStarted := x.tasks.run(func(ctx context.Context) {
		ctx, stop := context.WithTimeout(ctx, max(dialMin, x.options.timeout))
		defer stop()
		x.bounded(ctx, x.load, func(_ Conn, err error) {
			r.err = x.unmapped(err)
			unknown.noteReading(r)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.reading, x.wasRead = nil, true
			close(r.ended)
		})
	})
	if !isStarted {
		x.reading = nil
		close(r.ended)
	}
	return r, patience
}

// beginReading begins to wait for the slot map, unless the breaker is open or as many calls wait as
// may be in flight and in line.
func (n *node) beginReading(t *turn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.node = n
	if err := n.enter(t, t.readAt); err != nil {
		return err
	}
	if n.readers >= n.x.options.maxInFlight+n.x.options.maxWaiting {
		text := fmt.Sprintf("not sent: %d calls wait for the slot map", n.readers)
		return notSent(ReasonOverloaded, text)
	}
	n.readers++
	return nil
}

// leaveReading ends a call's wait for the slot map.
func (n *node) leaveReading() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readers--
}

// noteReading notes the end of a reading. It is one failure for all that wait.
func (n *node) noteReading(r *mapReading) {
	var unavailable *Unavailable
	n.mu.Lock()
	defer n.mu.Unlock()
	if errors.As(r.err, &unavailable) {
		r.isCounted = true
		n.breaker.fail(time.Now())
	}
}

// endReading ends a call's wait for a reading. A map without the key's slot is a failure, too: the
// breaker bounds the number of readings.
func (n *node) endReading(t *turn, r *mapReading, isFound bool) {
	t.leave()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case r.isCounted:
	case isFound || r.err != nil:
		n.noteFinalReply()
	default:
		r.isCounted = true
		n.breaker.fail(time.Now())
	}
}

// unmapped returns the error of a reading for its calls.
func (x *exchange) unmapped(err error) error {
	var said ServerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said):
		return x.classified(said)
	case errors.Is(err, context.DeadlineExceeded):
		return notSent(ReasonConnection, "not sent: no slot map in time")
	}
	return &Unavailable{Reason: ReasonConnection, message: err.Error(), err: err}
}

// refresh reads the slot map again, at most once in the limiter's timeout.
func (x *exchange) refresh() {
	if x.router == nil {
		return
	}
	x.tasks.run(func(ctx context.Context) {
		x.mu.Lock()
		if x.isReading || time.Now().Before(x.readAgainAt) {
			x.mu.Unlock()
			return
		}
		x.isReading = true
		x.mu.Unlock()
		ctx, stop := context.WithTimeout(ctx, max(dialMin, x.options.timeout))
		defer stop()
		x.bounded(ctx, x.load, func(_ Conn, err error) {
			x.mu.Lock()
			x.isReading, x.readAgainAt = false, time.Now().Add(x.options.timeout)
			x.mu.Unlock()
			if err == nil {
				x.forgetOthers(x.router.Primaries())
			}
		})
	})
}

// load reads the slot map, and returns no connection.
func (x *exchange) load(ctx context.Context) (Conn, error) { return nil, x.router.Load(ctx) }

// redirected returns an address of a redirection. Without a host it is that of the node.
func redirected(address, from string) string {
	if strings.HasPrefix(address, ":") {
		return from[:max(0, strings.LastIndex(from, ":"))] + address
	}
	return address
}

// forgetOthers closes the connections to nodes that are no primaries.
func (x *exchange) forgetOthers(primaries []string) {
	gone := map[string]*node{}
	x.mu.Lock()
	for name, n := range x.nodes {
		gone[name] = n
	}
	for _, name := range append(primaries, "") {
		delete(gone, name)
	}
	x.leaving = slices.DeleteFunc(x.leaving, (*node).hasLeft)
	for name, n := range gone {
		delete(x.nodes, name)
		x.leaving = append(x.leaving, n)
	}
	x.mu.Unlock()
	for _, n := range gone {
		n.mu.Lock()
		n.pool.close(n, false)
		n.mu.Unlock()
	}
}
