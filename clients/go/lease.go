package throttle

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
)

// Permit is a permit that [Limiter.Lease] took. While it is held, it renews itself after each
// third of its ttl. It is not a lock: a process stopped for longer than the ttl notices the loss
// too late.
type Permit struct {
	decision Decision
	holds    *holds
	late     *late
	isOver   atomic.Bool
	end      sync.Once
}

// Lease takes one of the permits of a rule made by [Lease]. Release it with defer:
//
//	held, err := limiter.Lease(ctx, jobs.Of("tenant:7"))
//	if err != nil {
//		return err // A Denied, if all permits are taken.
//	}
//	defer held.Release(ctx)
//
// If ctx ends while the call is in flight, a permit that it may have taken is given back.
func (l *Limiter) Lease(ctx context.Context, item Item, opts ...CallOption) (*Permit, error) {
	keyed, err := l.single(ctx, item, opts)
	if err != nil {
		return nil, err
	}
	if keyed.rule.kind != KindLease {
		return nil, invalid("rule", "a rule made by Lease; "+keyed.rule.name+" is not")
	}
	if !hasOption(opts, func(o *callOptions) bool { return o.id != nil }) {
		keyed.id = rand.Text()
	}
	c, err := singleCall("CHECK", keyed)
	if err != nil {
		return nil, err
	}
	if err := l.ending.begin(); err != nil {
		return nil, err
	}
	defer l.ending.takers.Done()
	d, err := l.ending.abandoning(ctx, c, false, func() (Decision, error) {
		return l.decider.decided(EventLease, c, func() (Decision, error) {
			reply, err := l.x.send(ctx, c)
			if err != nil {
				return Decision{}, err
			}
			return c.read(reply)
		})
	})
	if err != nil {
		return nil, err
	}
	if !d.Allowed {
		return nil, &Denied{Decision: d}
	}
	permit := &Permit{decision: d, late: c.late}
	permit.holds = newHolds(l.ending, []*hold{newHold(keyed, d, c.start.at)})
	if !l.ending.keep(ctx, permit) {
		return nil, ErrClosed
	}
	return permit, nil
}

func hasOption(opts []CallOption, has func(*callOptions) bool) bool {
	var o callOptions
	for _, one := range opts {
		one(&o)
	}
	return has(&o)
}

// Decision returns the decision that allowed the lease.
func (p *Permit) Decision() Decision {
	if p == nil {
		return Decision{}
	}
	return p.decision
}

// ID returns the name of the holder.
func (p *Permit) ID() string {
	if p == nil {
		return ""
	}
	return p.holds.all[0].item.id
}

// Held returns true while this process holds the permit, by its own clock. If OnError allowed the
// lease, that is until its release. A nil permit is not held; its other methods do
// not panic either.
func (p *Permit) Held() bool { return p != nil && !p.isOver.Load() && p.holds.held() }

// Lost returns a channel that is closed when the lease is lost. Stop the work then: another process
// may hold the permit.
func (p *Permit) Lost() <-chan struct{} {
	if p == nil {
		return closedAlready
	}
	return p.holds.lost
}

// closedAlready is the channel of what was never held.
var closedAlready = func() chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// Renew renews the permit for another ttl, and returns Held. A lease renews itself: call it only to
// learn the result.
func (p *Permit) Renew(ctx context.Context) (bool, error) {
	if ctx == nil {
		return false, invalid("ctx", "a context")
	}
	if p == nil {
		return false, invalid("permit", "one that Lease returned")
	}
	one := p.holds.all[0]
	if !p.Held() || !one.isOnServer {
		return p.Held(), nil
	}
	err := p.holds.renew(ctx, one)
	return p.Held(), err
}

// Release gives the permit back, even if ctx ends. If the first try gets no reply, Release returns
// and the limiter tries again until the permit expires or the limiter closes. A second Release
// waits for the first. On a nil permit it does nothing.
func (p *Permit) Release(ctx context.Context) {
	if p == nil {
		return
	}
	p.finish(shielded(ctx), false)
}

// ReleaseLater gives the permit back in the background, so that its caller does not wait for the
// server. Close of the limiter waits for it.
func (p *Permit) ReleaseLater() {
	if p != nil {
		p.isOver.Store(true)
		p.holds.ending.later(p)
	}
}

// finish releases the permit. Without a final reply to the last try it is unsettled.
func (p *Permit) finish(ctx context.Context, isLast bool) {
	p.isOver.Store(true)
	p.end.Do(func() {
		e, one := p.holds.ending, p.holds.all[0]
		p.holds.stop()
		defer e.drop(p)
		if mayBeThere(p.decision) {
			p.late.after(func() { e.release(ctx, one.item, p.holds.untilOf(one), isLast) })
		}
	})
}

// shielded returns a context with the values of another, which never ends.
func shielded(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// mayBeThere returns true if the server may hold the lease or the reservation of a row.
func mayBeThere(row Decision) bool {
	return row.Source == SourceServer || row.Source == SourceError && mayHaveRun(row.Err())
}
