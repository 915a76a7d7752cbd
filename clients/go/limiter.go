package throttle

import (
	"context"
	"crypto/rand"
	"sync"
	"time"
)

// readyMin is the shortest time that Ready may take.
const readyMin = 5 * time.Second

// Limiter decides calls under rules. Its methods may be called by several goroutines at once.
type Limiter struct {
	options  *options
	keys     *keys
	x        *exchange
	decider  *decider
	denials  *denials
	stocks   *prefetcher
	ending   *ending
	mu       sync.Mutex
	isClosed bool
	// closed is closed when Close has ended.
	closed chan struct{}
}

// New returns a limiter that dials with an adapter, such as that of
// redis-throttle.invalid/go/goredis. It sends nothing yet; see [Limiter.Ready].
func New(dialer Dialer, opts ...Option) (*Limiter, error) {
	if dialer == nil {
		return nil, invalid("dialer", "an adapter of a driver, such as goredis.Adapt(rdb)")
	}
	if refused, ok := dialer.(interface{ Err() error }); ok && refused.Err() != nil {
		return nil, refused.Err()
	}
	o := defaults()
	for _, one := range opts {
		if one == nil {
			return nil, invalid("options", "no nil")
		}
		one.applyLimiter(&o)
	}
	o.settle()
	if err := o.check(); err != nil {
		return nil, err
	}
	k, err := newKeys(o.prefix, o.hashTag, o.hmacSecret)
	if err != nil {
		return nil, err
	}
	l := &Limiter{options: &o, keys: k, closed: make(chan struct{}), stocks: newPrefetcher()}
	l.denials = newDenials(l.options)
	l.x = newExchange(dialer, l.options, l.denials.known)
	l.x.onLate = l.noteLate
	l.decider = &decider{
		x: l.x, keys: k, options: l.options, local: newLocalLimiter(), known: l.denials.known,
		log: newErrorLog(o.logsErrors),
	}
	l.decider.addHook(o.onDecision)
	l.ending = newEnding(l.x, l.decider, l.denials)
	return l, nil
}

// begin returns the options of a call that may begin.
func (l *Limiter) begin(ctx context.Context, opts []CallOption) (callOptions, error) {
	o, err := chosen(opts)
	if err != nil {
		return o, err
	}
	if err := l.isUsable(ctx); err != nil {
		return o, err
	}
	if err := ctx.Err(); err != nil {
		return o, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return o, ErrClosed
	}
	return o, nil
}

// chosen returns the options of a call. It allocates only if there are some.
func chosen(opts []CallOption) (callOptions, error) {
	if len(opts) == 0 {
		return callOptions{}, nil
	}
	var o callOptions
	for _, one := range opts {
		if one == nil {
			return o, invalid("options", "no nil")
		}
		one(&o)
	}
	return o, nil
}

func (l *Limiter) isUsable(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalid("ctx", "a context")
	case l == nil || l.x == nil:
		return invalid("limiter", "a limiter made by New")
	}
	return nil
}

// noteLate notes the reply to a call with leases or reservations whose caller has gone.
func (l *Limiter) noteLate(c *call, reply any, err error) {
	if c.late == nil {
		return
	}
	mayHold := !isReply(err)
	if err == nil {
		d, err := c.read(reply)
		mayHold = err != nil || d.Allowed
	}
	c.late.end(mayHold)
}

// withKey returns an item with its key.
func (l *Limiter) withKey(item Item, o callOptions) (*keyedItem, error) {
	if item.rule == nil {
		return nil, invalid("item", "an item made by Rule.Of")
	}
	if item.err != nil {
		return nil, item.err
	}
	if l.decider.onErrorOf(item.rule) == Local && item.rule.local == nil {
		return nil, noLocal(item.rule)
	}
	key, err := l.keys.key(item.rule.name, item.subject, o.tag)
	if err != nil {
		return nil, err
	}
	keyed := &keyedItem{
		rule: item.rule, key: key, subject: item.subject, cost: item.cost, leave: item.leave,
		ttl: item.ttl, partial: o.partial, budget: o.budget,
	}
	if o.id != nil {
		keyed.id = *o.id
	}
	return keyed, nil
}

// single begins a call of one item that is no reservation.
func (l *Limiter) single(ctx context.Context, item Item, opts []CallOption) (*keyedItem, error) {
	o, err := l.begin(ctx, opts)
	if err != nil {
		return nil, err
	}
	keyed, err := l.withKey(item, o)
	if err == nil && keyed.ttl != 0 {
		err = invalid("item", "no reservation: Admit and Reserve take one")
	}
	return keyed, err
}

// Check decides a call, and takes its cost if it is allowed. A denial is not an error.
func (l *Limiter) Check(ctx context.Context, item Item, opts ...CallOption) (Decision, error) {
	keyed, err := l.single(ctx, item, opts)
	if err != nil {
		return Decision{}, err
	}
	if keyed.rule.kind == KindLease {
		return Decision{}, invalid("rule", "no lease: Limiter.Lease takes one")
	}
	batch := l.prefetchOf(keyed)
	if batch > 1 {
		if permit, ok := l.stocks.spend(keyed.key, keyed.rule); ok {
			return l.decider.counted(EventCheck, permit, []*keyedItem{keyed}, time.Time{}), nil
		}
	}
	c, err := singleCall("CHECK", keyed)
	if err != nil {
		return Decision{}, err
	}
	c.isKnowable = true
	if !keyed.partial {
		if denied, ok := l.denials.cache.get(c); ok {
			return l.decider.counted(EventCheck, denied, c.items, time.Time{}), nil
		}
	}
	return l.decider.decided(EventCheck, c, func() (Decision, error) {
		if batch > 1 {
			return l.fetched(ctx, keyed, c, batch)
		}
		return l.sent(ctx, c, c)
	})
}

// sent sends a call and reads its decision. A denial is cached as that of the call of.
func (l *Limiter) sent(ctx context.Context, c, of *call) (Decision, error) {
	reply, err := l.x.send(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	if !c.isKnowable {
		return c.read(reply)
	}
	if c.err == nil && of != nil {
		l.denials.cache.put(of, c.decision, c.start)
	}
	return c.decision, c.err
}

// Peek returns the decision that Check would make. It takes nothing.
func (l *Limiter) Peek(ctx context.Context, item Item, opts ...CallOption) (Decision, error) {
	keyed, err := l.single(ctx, item, opts)
	if err != nil {
		return Decision{}, err
	}
	if keyed.rule.kind == KindLease {
		keyed.id = peekID(keyed.id)
	}
	if keyed.partial {
		return Decision{}, invalid("partial", "a check")
	}
	c, err := singleCall("PEEK", keyed)
	if err != nil {
		return Decision{}, err
	}
	c.isKnowable = keyed.rule.kind != KindLease
	return l.decider.decided(EventPeek, c, func() (Decision, error) {
		return l.sent(ctx, c, nil)
	})
}

// peekID returns the id of a lease that is looked at.
func peekID(id string) string {
	if id == "" {
		return rand.Text()
	}
	return id
}

// Refund gives the item's cost back, up to the full allowance. Without a final reply it returns an
// [Unavailable]; the refund may have run, so do not repeat it.
func (l *Limiter) Refund(ctx context.Context, item Item, opts ...CallOption) (Decision, error) {
	return l.settled(ctx, "REFUND", EventRefund, item, opts)
}

// Charge takes the item's cost even if fewer units are left, as a debt. Its errors are those of
// Refund.
func (l *Limiter) Charge(ctx context.Context, item Item, opts ...CallOption) (Decision, error) {
	return l.settled(ctx, "CHARGE", EventCharge, item, opts)
}

func (l *Limiter) settled(
	ctx context.Context, verb string, kind EventKind, item Item, opts []CallOption,
) (Decision, error) {
	keyed, err := l.single(ctx, item, opts)
	if err != nil {
		return Decision{}, err
	}
	if keyed.partial || keyed.leave != "" {
		return Decision{}, invalid("item", "neither partial nor leave in a refund and a charge")
	}
	c, err := singleCall(verb, keyed)
	if err != nil {
		return Decision{}, err
	}
	forget := l.denials.forget
	if kind == EventCharge {
		forget = l.denials.charge
	}
	forget(keyed.key)
	defer forget(keyed.key)
	reply, err := l.decider.send(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	d, err := readSettled(reply, keyed.rule)
	if err != nil {
		l.decider.noteRejection(err, c.items, c.start.at)
		return Decision{}, err
	}
	l.decider.report(outcome{kind: kind, decision: &d, items: c.items, startedAt: c.start.at})
	return d, nil
}

// Forget deletes the state of the item's subject under its rule. It returns true if there was one,
// or an [Unavailable] without a final reply.
func (l *Limiter) Forget(ctx context.Context, item Item, opts ...CallOption) (bool, error) {
	keyed, err := l.single(ctx, item, opts)
	if err != nil {
		return false, err
	}
	// What this process counted without the server, and may count while the call is in flight.
	l.decider.local.forget(keyed)
	defer l.decider.local.forget(keyed)
	reply, err := l.forgetting(ctx, keyed, forgetCall(keyed.key))
	if err != nil {
		return false, err
	}
	deleted, err := readInteger(reply)
	return deleted > 0, err
}

// Block denies all calls of the item's subject under its rule for a time, from 1 ms to 366 days,
// which replaces the state. Forget ends it. Without a final reply it returns an [Unavailable].
func (l *Limiter) Block(
	ctx context.Context, item Item, d time.Duration, opts ...CallOption,
) error {
	keyed, err := l.single(ctx, item, opts)
	if err != nil {
		return err
	}
	c, err := blockCall(keyed.key, d)
	if err != nil {
		return err
	}
	_, err = l.forgetting(ctx, keyed, c)
	return err
}

// forgetting sends a call, before and after which this process forgets what it keeps of the key.
func (l *Limiter) forgetting(ctx context.Context, keyed *keyedItem, c *call) (any, error) {
	forget := func() {
		l.denials.forget(keyed.key)
		l.stocks.forget(keyed.key)
	}
	forget()
	// Again, because calls in flight may have stored results in the meantime.
	defer forget()
	c.items = []*keyedItem{keyed}
	return l.decider.send(ctx, c)
}

// Ready checks, at the start of a program, that the server replies, and returns the back end in
// use. It takes at most 5 s, or the timeout if that is longer. Its errors are a [CommandRejected]
// and an [Unavailable], which says how far it came.
func (l *Limiter) Ready(ctx context.Context) (Backend, error) {
	if _, err := l.begin(ctx, nil); err != nil {
		return "", err
	}
	key, err := l.keys.key("ready", "ready", nil)
	if err != nil {
		return "", err
	}
	c := probeCall(key)
	c.limit = max(readyMin, l.options.timeout)
	if _, err := l.decider.send(ctx, c); err != nil {
		return "", err
	}
	return l.x.backends.inUse(), nil
}

// OnDecision adds a hook to that of [WithOnDecision]. It gets the same events, after the earlier
// hooks. A nil hook is ignored.
func (l *Limiter) OnDecision(hook func(Event)) {
	if l != nil && l.decider != nil {
		l.decider.addHook(hook)
	}
}

// OpenBreakers returns the number of nodes whose circuit breaker is open: calls to them end at
// once.
func (l *Limiter) OpenBreakers() int {
	if l == nil || l.x == nil {
		return 0
	}
	return l.x.openBreakers()
}

// Counters returns the counts since the limiter was created.
func (l *Limiter) Counters() Counters {
	if l == nil || l.decider == nil {
		return Counters{}
	}
	return l.decider.counters()
}

// Close ends the limiter. Later calls, and those in line, return [ErrClosed]. Calls that were sent
// get their replies, for which Close waits at most the limiter's timeout. Leases and admissions
// that are held end as by their Release and Finish, with one try, and prefetched permits that were
// not spent are refunded, all within that time. Then it closes the limiter's connections, never the
// caller's client, and no goroutine of the limiter is left. What got no final reply by then is
// counted as [Counters].Unsettled. If ctx ends first, Close ends. A second Close waits for the
// first.
func (l *Limiter) Close(ctx context.Context) error {
	if err := l.isUsable(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	wasClosed := l.isClosed
	l.isClosed = true
	l.mu.Unlock()
	if wasClosed {
		select {
		case <-l.closed:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	defer close(l.closed)
	defer context.AfterFunc(ctx, l.x.close)()
	replies := l.x.shut()
	waiting, stop := context.WithTimeout(ctx, l.options.timeout)
	defer stop()
	takers, refunds := l.ending.close(waiting), l.refundStocks(waiting)
	for _, idle := range append(replies, takers, refunds) {
		select {
		case <-idle:
		case <-waiting.Done():
		}
	}
	l.x.close()
	<-takers
	<-refunds
	l.ending.tasks.group.Wait()
	l.decider.log.close()
	return ctx.Err()
}
