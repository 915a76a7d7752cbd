package throttle

import (
	"context"
	"errors"
	"slices"
	"time"
)

// beginAll begins a call of several items, and returns them with their keys.
func (l *Limiter) beginAll(
	ctx context.Context, items []Item, opts []CallOption,
) ([]*keyedItem, error) {
	o, err := l.begin(ctx, opts)
	if err != nil {
		return nil, err
	}
	return l.withKeys(items, o)
}

// withKeys returns several items with their keys.
func (l *Limiter) withKeys(items []Item, o callOptions) ([]*keyedItem, error) {
	if o.partial {
		return nil, invalid("partial", "a check of one rule")
	}
	keyed := make([]*keyedItem, len(items))
	for at, item := range items {
		one, err := l.withKey(item, o)
		if err != nil {
			return nil, err
		}
		keyed[at] = one
	}
	return keyed, nil
}

// CheckAll checks up to 16 items at once, and takes from all or from none. The decision has a row
// for each. The caller ends the leases and reservations among them, which need an [ID];
// [Limiter.Admit] does that by itself.
func (l *Limiter) CheckAll(
	ctx context.Context, items []Item, opts ...CallOption,
) (Decision, error) {
	keyed, err := l.beginAll(ctx, items, opts)
	if err != nil {
		return Decision{}, err
	}
	c, err := severalCall(keyed, false)
	if err != nil {
		return Decision{}, err
	}
	if c.isHolding() {
		if err := l.ending.begin(); err != nil {
			return Decision{}, err
		}
		defer l.ending.takers.Done()
		return l.ending.abandoning(ctx, c, false, func() (Decision, error) {
			return l.several(ctx, EventCheck, c, false)
		})
	}
	c.isKnowable = true
	if denied, ok := l.denials.cache.get(c); ok {
		return l.decider.counted(EventCheck, denied, keyed, time.Time{}), nil
	}
	return l.several(ctx, EventCheck, c, true)
}

// PeekAll returns the decision that CheckAll would make. It takes nothing.
func (l *Limiter) PeekAll(
	ctx context.Context, items []Item, opts ...CallOption,
) (Decision, error) {
	keyed, err := l.beginAll(ctx, items, opts)
	if err != nil {
		return Decision{}, err
	}
	c, err := severalCall(keyed, true)
	if err != nil {
		return Decision{}, err
	}
	c.isKnowable = !c.isHolding()
	return l.several(ctx, EventPeek, c, false)
}

// several sends a call of several items and decides it.
func (l *Limiter) several(
	ctx context.Context, kind EventKind, c *call, isCached bool,
) (Decision, error) {
	return l.decider.decided(kind, c, func() (Decision, error) {
		of := c
		if !isCached {
			of = nil
		}
		d, err := l.sent(ctx, c, of)
		if err != nil {
			if denial, ok := tooManyDenial(err, c.items); ok {
				return denial, nil
			}
		}
		return d, err
	})
}

// CheckEach checks one item after the other, for keys of different slots. If one denies, or the
// call fails or is cancelled, it refunds what the earlier ones took. Until then other callers
// cannot use those units. The calls have one timeout in all. Leases, reservations and backoffs have
// no refunds, and are refused.
func (l *Limiter) CheckEach(
	ctx context.Context, items []Item, opts ...CallOption,
) (Decision, error) {
	keyed, err := l.beginAll(ctx, items, opts)
	if err != nil {
		return Decision{}, err
	}
	if len(items) == 0 {
		return Decision{}, invalid("items", "at least one item")
	}
	costs := make([]int64, len(keyed))
	for at, one := range keyed {
		if one.isHeld() || !one.rule.TakesCost() {
			return Decision{}, invalid("items", "no lease, reservation or backoff: "+one.rule.name)
		}
		costs[at] = one.cost
	}
	var rows []Decision
	waiting := &budget{left: l.options.timeout}
	sharing := append(slices.Clone(opts), waiting.shared)
	for _, item := range items {
		row, err := l.Check(ctx, item, sharing...)
		if err != nil {
			l.giveBack(ctx, items, rows, opts)
			return Decision{}, err
		}
		rows = append(rows, row)
		if !row.Allowed {
			// Too many calls would be more with refunds.
			if row.Reason != ReasonOverloaded {
				l.giveBack(ctx, items, rows, opts)
			}
			break
		}
	}
	return combined(rows, costs), nil
}

// shared is the option of the calls that share the time.
func (b *budget) shared(o *callOptions) { o.budget = b }

// giveBack refunds, once, what the rows took. A row that only shadow mode allowed took nothing. The
// end of ctx does not end it.
func (l *Limiter) giveBack(ctx context.Context, items []Item, rows []Decision, opts []CallOption) {
	for at, row := range rows {
		if row.Allowed && row.WouldAllow && !row.Degraded && items[at].cost > 0 {
			_, _ = l.refundOf(context.WithoutCancel(ctx), items[at], row, opts)
		}
	}
}

// refundOf gives back what a check took.
func (l *Limiter) refundOf(
	ctx context.Context, item Item, taken Decision, opts []CallOption,
) (Decision, error) {
	item.cost, item.leave = taken.Granted, ""
	whole := func(o *callOptions) { o.partial = false }
	return l.Refund(ctx, item, append(slices.Clone(opts), whole)...)
}

// Wait checks until the call is allowed: after a denial it sleeps for RetryAfter and checks again.
// In a leaky bucket it then sleeps until the call's turn. If a sleep would end later than longest
// after now, it takes nothing and returns a denial. A decision without the server, and one that is
// never allowed, returns at once. The calls have one timeout in all, its sleeps apart; if that is
// over, Wait returns the last denial.
func (l *Limiter) Wait(
	ctx context.Context, item Item, longest time.Duration, opts ...CallOption,
) (Decision, error) {
	if longest < 0 {
		return Decision{}, invalid("longest", "a duration of at least 0")
	}
	if err := l.isUsable(ctx); err != nil {
		return Decision{}, err
	}
	until := time.Now().Add(longest)
	waiting := &budget{left: l.options.timeout}
	opts = append(slices.Clone(opts), waiting.shared)
	for {
		d, err := l.Check(ctx, item, opts...)
		if err != nil || d.RetryAfter == 0 {
			return d, err
		}
		fits := !d.Never && d.RetryAfter <= time.Until(until)
		if !d.Allowed && (!fits || d.Source == SourceError || waiting.left <= 0) {
			return d, nil
		}
		hasPlace := d.Allowed && !d.Degraded
		if !fits {
			return l.tooLate(ctx, item, d, hasPlace, opts)
		}
		if !sleep(ctx, d.RetryAfter) {
			if hasPlace {
				_, _ = l.refundOf(context.WithoutCancel(ctx), item, d, opts)
			}
			return Decision{}, ctx.Err()
		}
		if d.Allowed {
			return d, nil
		}
		waiting.denial = &d
	}
}

// tooLate leaves the queue of a leaky bucket, and denies the call. Without a final reply its
// place stays taken.
func (l *Limiter) tooLate(
	ctx context.Context, item Item, d Decision, hasPlace bool, opts []CallOption,
) (Decision, error) {
	if hasPlace {
		_, err := l.refundOf(ctx, item, d, opts)
		var unavailable *Unavailable
		if err != nil && !errors.As(err, &unavailable) {
			return Decision{}, err
		}
	}
	d.Allowed, d.WouldAllow, d.Granted = false, false, 0
	return d, nil
}
