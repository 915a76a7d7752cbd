package throttle

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
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
	denials *denials
	tasks   *tasks

	mu sync.Mutex
	// open has the leases and admissions that are held. takers are the calls that take some.
	open     map[holder]bool
	takers   sync.WaitGroup
	isClosed bool
}

// holder is a lease or an admission. Its finish ends it, once; isLast says that the limiter closes.
type holder interface {
	finish(ctx context.Context, isLast bool)
}

func newEnding(x *exchange, d *decider, remembered *denials) *ending {
	return &ending{
		x: x, decider: d, denials: remembered, tasks: newTasks(), open: map[holder]bool{},
	}
}

// keep notes what is held. After close it ends it at once, and returns false.
func (e *ending) keep(ctx context.Context, held holder) bool {
	e.mu.Lock()
	if !e.isClosed {
		e.open[held] = true
		e.mu.Unlock()
		return true
	}
	e.mu.Unlock()
	held.finish(shielded(ctx), true)
	return false
}

// begin lets a call take leases or reservations, unless the limiter closes. Close waits for its
// takers.Done: what it took by then is kept or has been given back.
func (e *ending) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isClosed {
		return ErrClosed
	}
	e.takers.Add(1)
	return nil
}

// later ends what is held in the background. What the limiter's close interrupts, it ends itself.
func (e *ending) later(held holder) {
	e.tasks.run(func(context.Context) { held.finish(context.Background(), false) })
}

// drop forgets what has ended. Close waits for it until then.
func (e *ending) drop(held holder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, held)
}

// close ends what is held, with one try that ends with ctx. The channel is closed when the calls
// have returned that were taking more.
func (e *ending) close(ctx context.Context) <-chan struct{} {
	e.mu.Lock()
	e.isClosed = true
	held := slices.Collect(maps.Keys(e.open))
	e.mu.Unlock()
	e.tasks.close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all sync.WaitGroup
		for _, one := range held {
			all.Go(func() { one.finish(ctx, true) })
		}
		all.Wait()
		e.takers.Wait()
	}()
	return ended
}

// late is what a call that takes leases or reservations leaves behind if its caller goes. Its
// reply, or the end of its connection, says whether there is something to give back.
type late struct {
	mu sync.Mutex
	// isPending says whether the reply may still arrive. isNothing says that it took nothing.
	isPending, isNothing bool
	then                 func()
}

// begin notes that the caller has gone. Nil holds nothing.
func (l *late) begin() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isPending = true
}

// end notes that no reply will come any more.
func (l *late) end(mayHold bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.isPending, l.isNothing = false, !mayHold
	then := l.then
	l.mu.Unlock()
	if then != nil && mayHold {
		then()
	}
}

// after calls a function that gives back, when the server has run the call: a RELEASE that arrives
// before its LEASE would get the reply 0, and the lease would stay.
func (l *late) after(giveBack func()) {
	l.mu.Lock()
	if l.isPending {
		l.then = giveBack
		l.mu.Unlock()
		return
	}
	isNothing := l.isNothing
	l.mu.Unlock()
	if !isNothing {
		giveBack()
	}
}

// end is a command that ends an item.
type end struct {
	kind EventKind
	call *call
	item *keyedItem
	// until is the end of the repetitions and of the wait for a slot.
	until time.Time
	// isCounted says whether a failure is counted as unsettled.
	isCounted bool
	// onUnknown is called if the server does not know a reservation; nil for nothing.
	onUnknown func(ctx context.Context)
}

// attempt is the result of sending an end once.
type attempt struct {
	startedAt time.Time
	// decision is nil after an error, and of a release.
	decision *Decision
	err      error
}

// isFinal returns true after a final reply, even if that is a rejection.
func (a attempt) isFinal() bool {
	var unavailable *Unavailable
	return !errors.As(a.err, &unavailable)
}

// release gives a lease back. Like all ends, it returns after the first attempt, also without a
// final reply.
func (e *ending) release(ctx context.Context, keyed *keyedItem, until time.Time, isCounted bool) {
	e.sendEnd(ctx, end{
		kind: EventLease, call: releaseCall(keyed), item: keyed, until: until, isCounted: isCounted,
	})
}

// cancel frees a reservation.
func (e *ending) cancel(ctx context.Context, keyed *keyedItem, until time.Time, isCounted bool) {
	e.sendEnd(ctx, end{
		kind: EventCancel, call: cancelCall(keyed), item: keyed, until: until, isCounted: isCounted,
	})
}

// commit charges what a reservation's work took. If isCharged is true, the units of an unknown
// reservation are charged.
func (e *ending) commit(
	ctx context.Context, keyed *keyedItem, units int64, until time.Time, isCharged bool,
) {
	one := end{
		kind: EventCommit, call: commitCall(keyed, units), item: keyed, until: until,
		isCounted: true,
	}
	if isCharged {
		one.onUnknown = func(ctx context.Context) { e.settle(ctx, keyed, units) }
	}
	e.sendEnd(ctx, one)
}

// settle charges a number of units, or refunds them if it is below 0. It sends the command once.
func (e *ending) settle(ctx context.Context, keyed *keyedItem, units int64) {
	if units == 0 {
		return
	}
	plain := &keyedItem{
		rule: keyed.rule, key: keyed.key, subject: keyed.subject, cost: max(units, -units),
	}
	one := end{kind: EventCharge, item: plain, until: time.Now().Add(settleSlot), isCounted: true}
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
	ctx context.Context, c *call, isCounted bool, decide func() (Decision, error),
) (Decision, error) {
	if !c.isHolding() {
		return decide()
	}
	c.late = &late{}
	d, err := decide()
	isGivenUp := err != nil && c.isSent && ctx.Err() != nil && errors.Is(err, ctx.Err())
	if isGivenUp || err == nil && !d.Allowed && mayHaveRun(d.Err()) {
		c.late.after(func() { e.abandon(c.items, isCounted) })
	}
	return d, err
}

func (e *ending) abandon(items []*keyedItem, isCounted bool) {
	isRunning := e.tasks.run(func(ctx context.Context) {
		var ends []func()
		for _, keyed := range items {
			until := time.Now().Add(keyed.holdTTL())
			switch {
			case keyed.ttl != 0:
				ends = append(ends, func() { e.cancel(ctx, keyed, until, isCounted) })
			case keyed.isHeld():
				ends = append(ends, func() { e.release(ctx, keyed, until, isCounted) })
			}
		}
		inOrder(ends)
	})
	if isRunning {
		return
	}
	// The limiter closes.
	for _, keyed := range items {
		one := end{kind: EventCancel, item: keyed, isCounted: true}
		if keyed.ttl == 0 {
			one.kind = EventLease
		}
		if keyed.isHeld() {
			e.over(context.Background(), one, attempt{err: ErrClosed}, false)
		}
	}
}

// sendEnd sends an end. Without a final reply, further attempts follow in the background.
func (e *ending) sendEnd(ctx context.Context, one end) {
	first := e.attempt(ctx, one)
	if first.isFinal() {
		e.over(ctx, one, first, false)
		return
	}
	if !e.tasks.run(func(ctx context.Context) { e.repeat(ctx, one, first) }) {
		// The limiter closes.
		one.isCounted = true
		e.over(ctx, one, first, false)
	}
}

func (e *ending) repeat(ctx context.Context, one end, last attempt) {
	hasRun := false
	for pause := endPause; !last.isFinal(); pause = min(2*pause, endPauseMax) {
		hasRun = hasRun || mayHaveRun(last.err)
		if !time.Now().Add(pause).Before(one.until) {
			break
		}
		if !sleep(ctx, pause) {
			// The limiter closes.
			one.isCounted = true
			break
		}
		last = e.attempt(ctx, one)
	}
	e.over(ctx, one, last, hasRun)
}

// over counts and reports the last attempt of an end. If an earlier attempt may have run, an
// unknown reservation may be one that it ended.
func (e *ending) over(ctx context.Context, one end, last attempt, hasRun bool) {
	result := outcome{
		kind: one.kind, decision: last.decision, err: last.err,
		items: []*keyedItem{one.item}, startedAt: last.startedAt,
	}
	var rejected *CommandRejected
	switch {
	case last.err != nil:
		if !one.isCounted {
			return
		}
		e.decider.unsettled.Add(1)
		// A rejection was reported when it arrived.
		if !errors.As(last.err, &rejected) {
			e.decider.report(result)
		}
	case last.decision != nil:
		e.decider.report(result)
		if !last.decision.Allowed && !hasRun && one.onUnknown != nil {
			one.onUnknown(ctx)
		}
	}
}

func (e *ending) attempt(ctx context.Context, one end) attempt {
	result := attempt{startedAt: time.Now()}
	// An end waits for a slot although its ttl is over.
	until := one.until
	if least := result.startedAt.Add(e.x.options.timeout); until.Before(least) {
		until = least
	}
	if one.kind == EventLease {
		_, result.err = e.send(ctx, one.call, one.item, until, readNothing)
		return result
	}
	e.denials.forget(one.item.key)
	defer e.denials.forget(one.item.key)
	result.decision, result.err = e.send(ctx, one.call, one.item, until, readEnd)
	return result
}

// reading reads the reply of a renewal or an end.
type reading func(reply any, keyed *keyedItem) (*Decision, error)

func readNothing(any, *keyedItem) (*Decision, error) { return nil, nil }

func readEnd(reply any, keyed *keyedItem) (*Decision, error) {
	d, err := readSettled(reply, keyed.rule)
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// send sends a renewal or an end in a slot. It counts and reports a rejection.
func (e *ending) send(
	ctx context.Context, c *call, keyed *keyedItem, until time.Time, read reading,
) (*Decision, error) {
	startedAt := time.Now()
	c.isLast = true
	reply, err := e.x.sendUrgent(ctx, c, until)
	var d *Decision
	if err == nil {
		d, err = read(reply, keyed)
	}
	e.decider.noteRejection(err, []*keyedItem{keyed}, startedAt)
	return d, err
}

// renew renews a lease or a reservation. It returns false if the server does not keep it.
func (e *ending) renew(ctx context.Context, keyed *keyedItem, until time.Time) (bool, error) {
	if keyed.ttl == 0 {
		isKept := false
		read := func(reply any, _ *keyedItem) (*Decision, error) {
			number, err := readInteger(reply)
			isKept = number == 1
			return nil, err
		}
		_, err := e.send(ctx, renewCall(keyed), keyed, until, read)
		return isKept, err
	}
	read := func(reply any, keyed *keyedItem) (*Decision, error) {
		row, err := readDecision(reply, keyed)
		return &row, err
	}
	d, err := e.send(ctx, reserveCall(keyed), keyed, until, read)
	var rejected *CommandRejected
	if errors.As(err, &rejected) {
		return false, nil
	}
	return err == nil && d.Allowed, err
}
