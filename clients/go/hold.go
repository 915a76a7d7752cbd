package throttle

import (
	"context"
	"slices"
	"sync"
	"time"
)

// hold is a permit or a reservation that this process holds. The mutex of its holds guards it.
type hold struct {
	item *keyedItem
	// isOnServer says whether the server granted it. Otherwise OnError did.
	isOnServer bool
	// until is the end of the ttl since the last successful renewal was sent.
	until time.Time
	// dueAt is the instant of the next renewal.
	dueAt  time.Time
	isLost bool
}

// holds are what a lease or an admission holds. They renew themselves after each third of their
// ttl, without waiting for the reply to another renewal.
type holds struct {
	ending *ending
	ctx    context.Context
	stop   context.CancelFunc
	// lost is closed when one is lost.
	lost chan struct{}

	mu  sync.Mutex
	all []*hold
}

func newHolds(e *ending, all []*hold) *holds {
	h := &holds{ending: e, all: all, lost: make(chan struct{})}
	h.ctx, h.stop = context.WithCancel(e.tasks.ctx)
	if slices.ContainsFunc(all, func(one *hold) bool { return one.isOnServer }) {
		e.tasks.run(func(context.Context) { h.run() })
	}
	return h
}

// newHold returns the hold of a row that was allowed.
func newHold(keyed *keyedItem, row Decision, startedAt time.Time) *hold {
	ttl := keyed.holdTTL()
	return &hold{
		item: keyed, isOnServer: row.Source == SourceServer, until: startedAt.Add(ttl),
		dueAt: startedAt.Add(ttl / 3),
	}
}

// run renews until all are lost or ended.
func (h *holds) run() {
	defer h.stop()
	for {
		due, ok := h.nextDue()
		if !ok || !sleep(h.ctx, time.Until(due)) {
			return
		}
		if renewals := h.renewals(); len(renewals) > 0 {
			h.ending.tasks.run(func(context.Context) { inOrder(renewals) })
		}
	}
}

// nextDue returns the instant at which the next hold is renewed or lost.
func (h *holds) nextDue() (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var next time.Time
	for _, one := range h.all {
		if one.isOnServer && !one.isLost && (next.IsZero() || one.dueAt.Before(next)) {
			next = one.dueAt
		}
	}
	return next, !next.IsZero()
}

// renewals returns the renewals that are due, and notes what is lost.
func (h *holds) renewals() []func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	var due []func()
	for _, one := range h.all {
		switch {
		case !one.isOnServer || one.isLost || now.Before(one.dueAt):
		case !now.Before(one.until):
			h.lose(one)
		default:
			one.dueAt = now.Add(one.item.holdTTL() / 3)
			if one.until.Before(one.dueAt) {
				one.dueAt = one.until
			}
			// Without a final reply, further renewals follow before the ttl is over.
			due = append(due, func() { _ = h.renew(h.ctx, one) })
		}
	}
	return due
}

// lose notes that a hold is lost.
func (h *holds) lose(one *hold) {
	one.isLost = true
	select {
	case <-h.lost:
	default:
		close(h.lost)
	}
}

// renew renews a hold once.
func (h *holds) renew(ctx context.Context, one *hold) error {
	startedAt := time.Now()
	isKept, err := h.ending.renew(ctx, one.item, h.untilOf(one))
	h.mu.Lock()
	defer h.mu.Unlock()
	until := startedAt.Add(one.item.holdTTL())
	switch {
	case err != nil:
	case !isKept:
		h.lose(one)
	case until.After(one.until):
		// The replies to two renewals may arrive in any order.
		one.until = until
	}
	return err
}

func (h *holds) untilOf(one *hold) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return one.until
}

// held returns true until one is lost, by the clock of this process.
func (h *holds) held() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.all {
		if one.isLost || one.isOnServer && !time.Now().Before(one.until) {
			return false
		}
	}
	return true
}
