package throttle

import (
	"context"
	"crypto/rand"
	"sync"
)

// Admission is what [Limiter.Admit] took. While it lasts, its leases and reservations renew
// themselves.
type Admission struct {
	decision Decision
	id       string
	holds    *holds
	late     *late
	parts    []*part

	mu     sync.Mutex
	isOver bool
	end    sync.Once
}

// part is one item of an admission.
type part struct {
	item *keyedItem
	row  Decision
	// hold is nil for a plain rule.
	hold *hold
	// actual is the settled amount; hasActual says whether there is one.
	actual    int64
	hasActual bool
}

// Admit takes several items at once, leases and reservations among them, and returns what ends them
// together:
//
//	admitted, err := limiter.Admit(ctx, []throttle.Item{
//		requests.Of(tenant), tokens.Of(tenant).Cost(1800), runs.Of(tenant),
//	})
//	if err != nil {
//		return err // A Denied, if a rule denies: then nothing was taken.
//	}
//	defer admitted.Finish(ctx)
//	completion := model(prompt)
//	err = admitted.Settle(tokens, completion.Tokens)
//
// Neither prefetched permits nor kept denials decide. If ctx ends while the call is in flight, what
// it may have taken is given back.
func (l *Limiter) Admit(
	ctx context.Context, items []Item, opts ...CallOption,
) (*Admission, error) {
	o, err := l.begin(ctx, opts)
	if err != nil {
		return nil, err
	}
	if o.id == nil {
		id := rand.Text()
		o.id = &id
	}
	if err := firstError(checkID(*o.id, idMax), checkSpaces(*o.id)); err != nil {
		return nil, err
	}
	keyed, err := l.withKeys(items, o)
	if err != nil {
		return nil, err
	}
	c, err := severalCall(keyed, false)
	if err != nil {
		return nil, err
	}
	if err := l.ending.begin(); err != nil {
		return nil, err
	}
	defer l.ending.takers.Done()
	d, err := l.ending.abandoning(ctx, c, true, func() (Decision, error) {
		return l.several(ctx, EventCheck, c, false)
	})
	if err != nil {
		return nil, err
	}
	if !d.Allowed {
		return nil, &Denied{Decision: d}
	}
	admitted := newAdmission(l.ending, c, d, *o.id)
	if !l.ending.keep(ctx, admitted) {
		return nil, ErrClosed
	}
	return admitted, nil
}

func newAdmission(e *ending, c *call, d Decision, id string) *Admission {
	admitted := &Admission{decision: d, id: id, late: c.late}
	var held []*hold
	for at, keyed := range c.items {
		one := &part{item: keyed, row: d}
		if at < len(d.Rows) {
			one.row = d.Rows[at]
		}
		if keyed.isHeld() {
			one.hold = newHold(keyed, one.row, c.start.at)
			held = append(held, one.hold)
		}
		admitted.parts = append(admitted.parts, one)
	}
	admitted.holds = newHolds(e, held)
	return admitted
}

// Decision returns the decision, with a row for each item.
func (a *Admission) Decision() Decision {
	if a == nil {
		return Decision{}
	}
	return a.decision
}

// ID returns the id of the leases and reservations.
func (a *Admission) ID() string {
	if a == nil {
		return ""
	}
	return a.id
}

// Held returns true until the end, or until a lease or a reservation is lost, by the clock of this
// process. A nil admission holds nothing; its other methods do not panic either.
func (a *Admission) Held() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.isOver && a.holds.held()
}

// Lost returns a channel that is closed when a lease or a reservation is lost.
func (a *Admission) Lost() <-chan struct{} {
	if a == nil {
		return closedAlready
	}
	return a.holds.lost
}

// Settle notes the units that the work took under a rule, from 0 to 10^12. It sends nothing; the
// last call counts. At the end a reservation is committed with them, and a plain rule is charged or
// refunded the difference. It returns an [InvalidArgument] for a rule that is not in the admission
// or is there twice, for a lease and a backoff, and after the end.
func (a *Admission) Settle(rule *Rule, actual int64) error {
	if rule == nil {
		return invalid("rule", "a rule of the admission")
	}
	return a.settle(rule, nil, actual)
}

// SettleItem is Settle for one of two items of the same rule.
func (a *Admission) SettleItem(item Item, actual int64) error {
	if item.rule == nil {
		return invalid("item", "an item of the admission")
	}
	return a.settle(item.rule, &item.subject, actual)
}

func (a *Admission) settle(rule *Rule, subject *string, actual int64) error {
	if a == nil {
		return invalid("admission", "one that Admit returned")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isOver {
		return invalid("rule", "an admission that has not ended, for "+rule.name)
	}
	var found *part
	for _, one := range a.parts {
		if !one.item.rule.isSame(rule) || subject != nil && *subject != one.item.subject {
			continue
		}
		if found != nil {
			return invalid("rule", "an item, because two items have the rule "+rule.name)
		}
		found = one
	}
	switch {
	case found == nil:
		return invalid("rule", "a rule of the admission; "+rule.name+" is not")
	case !rule.TakesCost():
		return invalid("rule", "a rule that takes a cost; "+rule.name+" does not")
	}
	if err := checkInt("actual", actual, 0, maxUnits); err != nil {
		return err
	}
	found.actual, found.hasActual = actual, true
	return nil
}

// Finish ends the admission: it releases leases, commits reservations that were settled and cancels
// the others, and charges or refunds plain rules that were settled. It returns after the first
// attempt of each. The end of ctx does not end it. Failures are counted as
// [Counters].Unsettled. Releases, commits and cancellations without a final reply are repeated
// until their ttl is over or the limiter is closed. A second call waits for the first. Of a nil
// admission it does nothing.
func (a *Admission) Finish(ctx context.Context) {
	if a == nil {
		return
	}
	a.finish(shielded(ctx), false)
}

// FinishLater ends the admission in the background, so that its caller does not wait for the
// server. Close of the limiter waits for it.
func (a *Admission) FinishLater() {
	if a != nil {
		a.markOver()
		a.holds.ending.later(a)
	}
}

func (a *Admission) markOver() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isOver = true
}

func (a *Admission) finish(ctx context.Context, _ bool) {
	a.markOver()
	a.end.Do(func() {
		a.holds.stop()
		defer a.holds.ending.drop(a)
		var ends []func()
		for _, one := range a.parts {
			ends = append(ends, func() { a.endOf(ctx, one) })
		}
		inOrder(ends)
	})
}

// endOf ends a part.
func (a *Admission) endOf(ctx context.Context, one *part) {
	e := a.holds.ending
	if one.hold == nil {
		// Shadow mode allows calls that take nothing, so that there is no difference to settle.
		if one.hasActual && one.row.Source == SourceServer && one.row.WouldAllow {
			e.settle(ctx, one.item, one.actual-one.item.cost)
		}
		return
	}
	if !mayBeThere(one.row) {
		return
	}
	a.late.after(func() { a.endHold(ctx, one) })
}

// endHold ends a lease or a reservation.
func (a *Admission) endHold(ctx context.Context, one *part) {
	e, until := a.holds.ending, a.holds.untilOf(one.hold)
	switch {
	case one.item.ttl == 0:
		e.release(ctx, one.item, until, true)
	case one.hasActual:
		e.commit(ctx, one.item, one.actual, until, one.row.Source == SourceServer)
	default:
		e.cancel(ctx, one.item, until, true)
	}
}
