package throttle

import (
	"context"
	"errors"
	"time"
)

const (
	// endPause is the pause before the second attempt of an end. It doubles up to endPauseMax.
	endPause    = 100 * time.Millisecond
	endPauseMax = 5 * time.Second
	// settleSlot is the time that a charge or a refund waits for a slot.
	settleSlot = 30 * time.Second
)

// ending ends what the server holds for this process, or owes it, and renews it until then.
type ending struct {
	x       *exchange
	decider *decider
	denials *denialCache
	tasks   *tasks
}

// end is a command that ends an item.
type end struct {
	kind EventKind
	call *call
	ask  *ask
	// until is the end of the repetitions and of the wait for a slot.
	until time.Time
	// isCounted says whether a failure is counted as unsettled.
	isCounted bool
	// onUnknown is called if the server does not know a reservation; nil for nothing.
	onUnknown func(ctx context.Context)
}

// attempt is the result of sending an end once.
type attempt struct {
	askedAt time.Time
	// decision is nil after an error, and of a release.
	decision *Decision
	err      error
}

// isFinal returns true if the server answered, even by a rejection.
func (a attempt) isFinal() bool {
	var away *Unavailable
	return !errors.As(a.err, &away)
}

// release gives a lease back. Like all ends, it returns after the first attempt, also without an
// answer.
func (e *ending) release(ctx context.Context, a *ask, until time.Time, isCounted bool) {
	e.untilAnswered(ctx, end{
		kind: EventLease, call: releaseCall(a), ask: a, until: until, isCounted: isCounted,
	})
}

// cancel frees a reservation.
func (e *ending) cancel(ctx context.Context, a *ask, until time.Time, isCounted bool) {
	e.untilAnswered(ctx, end{
		kind: EventCancel, call: cancelCall(a), ask: a, until: until, isCounted: isCounted,
	})
}

// commit charges what a reservation's work took. If isCharged is true, the units of an unknown
// reservation are charged.
func (e *ending) commit(
	ctx context.Context, a *ask, units int64, until time.Time, isCharged bool,
) {
	one := end{kind: EventCommit, call: commitCall(a, units), ask: a, until: until, isCounted: true}
	if isCharged {
		one.onUnknown = func(ctx context.Context) { e.settle(ctx, a, units) }
	}
	e.untilAnswered(ctx, one)
}

// settle charges a number of units, or refunds them if it is below 0. It sends the command once.
func (e *ending) settle(ctx context.Context, a *ask, units int64) {
	if units == 0 {
		return
	}
	plain := &ask{rule: a.rule, key: a.key, subject: a.subject, cost: max(units, -units)}
	one := end{kind: EventCharge, ask: plain, until: time.Now().Add(settleSlot), isCounted: true}
	verb := "CHARGE"
	if units < 0 {
		one.kind, verb = EventRefund, "REFUND"
	}
	one.call = oneCall(verb, plain)
	e.over(ctx, one, e.attempt(ctx, one), false)
}

// abandoning decides a call with leases or reservations. It ends those that may be there although
// the caller has nothing of them: OnError denied them, or the caller gave up.
func (e *ending) abandoning(
	ctx context.Context, asks []*ask, isCounted bool, decide func() (Decision, error),
) (Decision, error) {
	d, err := decide()
	isGivenUp := err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err())
	if isGivenUp || err == nil && !d.Allowed && mayHaveRun(d.Err()) {
		e.abandon(asks, isCounted)
	}
	return d, err
}

func (e *ending) abandon(asks []*ask, isCounted bool) {
	e.tasks.run(func(ctx context.Context) {
		var ends []func()
		for _, a := range asks {
			until := time.Now().Add(a.holdTTL())
			switch {
			case a.ttl != 0:
				ends = append(ends, func() { e.cancel(ctx, a, until, isCounted) })
			case a.isHeld():
				ends = append(ends, func() { e.release(ctx, a, until, isCounted) })
			}
		}
		inOrder(ends)
	})
}

// untilAnswered sends an end. Further attempts follow by themselves.
func (e *ending) untilAnswered(ctx context.Context, one end) {
	first := e.attempt(ctx, one)
	if first.isFinal() {
		e.over(ctx, one, first, false)
		return
	}
	if !e.tasks.run(func(ctx context.Context) { e.repeat(ctx, one, first) }) {
		e.over(ctx, one, first, false)
	}
}

func (e *ending) repeat(ctx context.Context, one end, last attempt) {
	hasRun := false
	for pause := endPause; !last.isFinal(); pause = min(2*pause, endPauseMax) {
		hasRun = hasRun || mayHaveRun(last.err)
		if !time.Now().Add(pause).Before(one.until) || !sleep(ctx, pause) {
			break
		}
		last = e.attempt(ctx, one)
	}
	e.over(ctx, one, last, hasRun)
}

// over counts and reports the last attempt of an end. If an earlier attempt may have run, an
// unknown reservation may be one that it ended.
func (e *ending) over(ctx context.Context, one end, last attempt, hasRun bool) {
	what := told{kind: one.kind, decision: last.decision, err: last.err, askedAt: last.askedAt}
	what.asks = []*ask{one.ask}
	var rejected *CommandRejected
	switch {
	case last.err != nil:
		if !one.isCounted {
			return
		}
		e.decider.unsettled.Add(1)
		// A rejection was reported when it arrived.
		if !errors.As(last.err, &rejected) {
			e.decider.tell(what)
		}
	case last.decision != nil:
		e.decider.tell(what)
		if !last.decision.Allowed && !hasRun && one.onUnknown != nil {
			one.onUnknown(ctx)
		}
	}
}

func (e *ending) attempt(ctx context.Context, one end) attempt {
	result := attempt{askedAt: time.Now()}
	// An end waits for a slot although its ttl is over.
	until := one.until
	if least := result.askedAt.Add(e.x.options.timeout); until.Before(least) {
		until = least
	}
	if one.kind == EventLease {
		_, result.err = e.send(ctx, one.call, one.ask, until, readNothing)
		return result
	}
	e.denials.forget(one.ask.key)
	defer e.denials.forget(one.ask.key)
	result.decision, result.err = e.send(ctx, one.call, one.ask, until, readEnd)
	return result
}

// reading reads the reply of a renewal or an end.
type reading func(reply any, a *ask) (*Decision, error)

func readNothing(any, *ask) (*Decision, error) { return nil, nil }

func readEnd(reply any, a *ask) (*Decision, error) {
	d, err := readSettled(reply, a.rule)
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// send sends a command in a slot of the leases. It counts and reports a rejection.
func (e *ending) send(
	ctx context.Context, c *call, a *ask, until time.Time, read reading,
) (*Decision, error) {
	askedAt := time.Now()
	reply, err := e.x.sendUrgent(ctx, c, until)
	var d *Decision
	if err == nil {
		d, err = read(reply, a)
	}
	e.decider.noteRejection(err, []*ask{a}, askedAt)
	return d, err
}

// renew renews a lease or a reservation. It returns false if the server does not keep it.
func (e *ending) renew(ctx context.Context, a *ask, until time.Time) (bool, error) {
	if a.ttl == 0 {
		isKept := false
		_, err := e.send(ctx, renewCall(a), a, until, func(reply any, _ *ask) (*Decision, error) {
			number, err := readInteger(reply)
			isKept = number == 1
			return nil, err
		})
		return isKept, err
	}
	d, err := e.send(ctx, reserveCall(a), a, until, func(reply any, a *ask) (*Decision, error) {
		row, err := readDecision(reply, a)
		return &row, err
	})
	var rejected *CommandRejected
	if errors.As(err, &rejected) {
		return false, nil
	}
	return err == nil && d.Allowed, err
}
