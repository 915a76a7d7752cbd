package throttle

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"redis-throttle.invalid/go/internal/algorithm"
)

// stocksMax is the maximum number of keys with permits. The oldest are dropped, which only makes
// the limit stricter.
const stocksMax = 10_000

// prefetcher keeps permits that one call fetched. While a fetch is under way, further callers wait
// for its permits. When all are promised, the next caller starts another fetch. So a key never has
// more than one fetch's permits that no caller waits for.
type prefetcher struct {
	mu     sync.Mutex
	stocks map[string]*list.Element
	order  *list.List
	// open has the fetch of each key that has permits not yet promised.
	open     map[string]*fetch
	fetches  sync.WaitGroup
	isClosed bool
}

// stock has the permits of a key.
type stock struct {
	key       string
	rule      *Rule
	grant     Decision
	left      int64
	expiresAt time.Time
}

// fetch is one call for several permits, and the callers that wait for them.
type fetch struct {
	key       string
	rule      *Rule
	permits   int64
	waiters   []*permitWaiter
	startedAt time.Time
	send      func(permits int64) (Decision, error)
	batch     int64
}

// permitWaiter is a caller that waits for a permit.
type permitWaiter struct {
	ready chan permit
	// smaller is the grant of a fetch that brought none for this caller.
	smaller *Decision
	isGone  bool
	// deadline is the end of the caller's time. isShort says that it is less than a timeout.
	deadline time.Time
	isShort  bool
}

type permit struct {
	decision Decision
	err      error
}

// prefetchOf returns the number of permits that a call fetches.
func (l *Limiter) prefetchOf(keyed *keyedItem) int64 {
	batch := keyed.rule.prefetch
	if batch == 0 {
		batch = l.options.prefetch
	}
	if !keyed.isPlain() || !keyed.rule.isPrefetchable() {
		return 1
	}
	return batch
}

// fetched takes a permit of a fetch. Other callers may share the fetch, so this caller's context
// does not end it.
func (l *Limiter) fetched(
	ctx context.Context, keyed *keyedItem, plain *call, batch int64,
) (Decision, error) {
	// A copy, because this call may be decided without the server while the fetch goes on.
	common := *keyed
	common.partial, common.budget = true, nil
	send := func(permits int64) (Decision, error) {
		whole := common
		whole.cost = permits
		c := oneCall("CHECK", &whole)
		c.isKnowable = true
		l.decider.begin(c)
		d, err := l.sent(context.WithoutCancel(ctx), c, plain)
		if err == errDeniedBefore {
			return *c.denied, nil
		}
		return d, err
	}
	w := &permitWaiter{deadline: time.Now().Add(l.options.timeout)}
	if keyed.budget != nil {
		w.deadline, w.isShort = time.Now().Add(keyed.budget.left), true
	}
	return l.stocks.take(ctx, w, &fetch{key: keyed.key, rule: keyed.rule, batch: batch, send: send})
}

func newPrefetcher() *prefetcher {
	return &prefetcher{
		stocks: map[string]*list.Element{}, order: list.New(), open: map[string]*fetch{},
	}
}

// spend takes a kept permit that was fetched under this rule.
func (p *prefetcher) spend(key string, rule *Rule) (Decision, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spendNow(key, rule)
}

// spendNow is spend under the lock.
func (p *prefetcher) spendNow(key string, rule *Rule) (Decision, bool) {
	element := p.stocks[key]
	if element == nil {
		return Decision{}, false
	}
	kept := element.Value.(*stock)
	now := time.Now()
	if kept.left < 1 || !now.Before(kept.expiresAt) || !kept.rule.isSame(rule) {
		p.drop(element)
		return Decision{}, false
	}
	return kept.spend(now), true
}

// spend returns the decision of a permit of the stock.
func (s *stock) spend(now time.Time) Decision {
	s.left--
	d := s.grant
	d.Granted, d.Source, d.Remaining = 1, SourceLocal, s.grant.Remaining+s.left
	d.ResetAfter = max(0, algorithm.Millis(int64(s.expiresAt.Sub(now))))
	return d
}

func (p *prefetcher) drop(element *list.Element) {
	delete(p.stocks, p.order.Remove(element).(*stock).key)
}

// take waits for a permit of a fetch, until the end of the caller's time or of ctx.
func (p *prefetcher) take(
	ctx context.Context, w *permitWaiter, wanted *fetch,
) (Decision, error) {
	w.ready = make(chan permit, 1)
	p.mu.Lock()
	// A fetch may have ended since the caller found no permit. Another one would drop its permits.
	if d, ok := p.spendNow(wanted.key, wanted.rule); ok {
		p.mu.Unlock()
		return d, nil
	}
	open := p.open[wanted.key]
	switch {
	case p.isClosed:
		p.mu.Unlock()
		return Decision{}, ErrClosed
	case open != nil && int64(len(open.waiters)) < open.permits && open.rule.isSame(wanted.rule):
		open.waiters = append(open.waiters, w)
	default:
		wanted.waiters = []*permitWaiter{w}
		p.start(wanted)
	}
	p.mu.Unlock()
	timer := time.NewTimer(time.Until(w.deadline))
	defer timer.Stop()
	for late := timer.C; ; late = nil {
		select {
		case got := <-w.ready:
			return got.decision, got.err
		case <-late:
			if d, err, isOver := p.leave(w, wanted.rule); isOver {
				return d, err
			}
		case <-ctx.Done():
			return p.giveUp(ctx, w, wanted.rule)
		}
	}
}

// leave ends the wait of a caller whose time is over. That of a whole timeout lasts until the end
// of the first fetch, which began no later.
func (p *prefetcher) leave(w *permitWaiter, rule *Rule) (Decision, error, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.smaller == nil && !w.isShort || len(w.ready) > 0 {
		return Decision{}, nil, false
	}
	w.isGone = true
	late := notSent(ReasonOverloaded, "no prefetched permit before the deadline")
	late.isSent = true
	d, err := w.without(rule, late)
	return d, err, true
}

// giveUp ends the wait of a caller whose context ended.
func (p *prefetcher) giveUp(ctx context.Context, w *permitWaiter, rule *Rule) (Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case got := <-w.ready:
		return got.decision, got.err
	default:
	}
	w.isGone = true
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return Decision{}, err
	}
	return w.without(rule, &Unavailable{
		Reason: ReasonTimeout, message: "no prefetched permit before the caller's deadline",
		isSent: true, isOwn: true,
	})
}

// without returns the result of a caller without a permit. If the server had granted too few, the
// call is denied.
func (w *permitWaiter) without(rule *Rule, err error) (Decision, error) {
	var unavailable *Unavailable
	if w.smaller != nil && errors.As(err, &unavailable) {
		return noneLeft(rule, *w.smaller), nil
	}
	return Decision{}, err
}

// start sends a fetch.
func (p *prefetcher) start(f *fetch) {
	f.permits, f.startedAt = max(f.batch, int64(len(f.waiters))), time.Now()
	p.open[f.key] = f
	permits := f.permits
	p.fetches.Go(func() {
		grant, err := f.send(permits)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil {
			p.share(f, grant)
			return
		}
		p.shut(f)
		for _, w := range f.waiters {
			d, err := w.without(f.rule, err)
			w.ready <- permit{d, err}
		}
	})
}

// shut closes a fetch to new callers. It returns false if forget has closed it.
func (p *prefetcher) shut(f *fetch) bool {
	if p.open[f.key] != f {
		return false
	}
	delete(p.open, f.key)
	return true
}

// share gives a permit to each caller in turn, and keeps the rest.
func (p *prefetcher) share(f *fetch, grant Decision) {
	wasOpen := p.shut(f)
	kept := &stock{
		key: f.key, rule: f.rule, grant: grant, left: grant.Granted,
		expiresAt: f.startedAt.Add(grant.ResetAfter),
	}
	if !grant.Allowed {
		kept.left = 0
	}
	var again []*permitWaiter
	isFirst, now := true, time.Now()
	for _, w := range f.waiters {
		switch {
		case w.isGone:
		case isFirst || !grant.Allowed:
			w.ready <- permit{decision: kept.first(isFirst)}
			isFirst = false
		case kept.left > 0:
			w.ready <- permit{decision: kept.spend(now)}
		case w.smaller != nil || !now.Before(w.deadline):
			w.ready <- permit{decision: noneLeft(f.rule, grant)}
		default:
			w.smaller = &grant
			again = append(again, w)
		}
	}
	if wasOpen && kept.left > 0 {
		p.keep(kept)
	}
	if len(again) > 0 {
		// They share one more fetch. After a second shortfall they are denied.
		p.start(&fetch{key: f.key, rule: f.rule, batch: f.batch, send: f.send, waiters: again})
	}
}

// first returns the decision of a caller that gets the server's decision.
func (s *stock) first(isFirst bool) Decision {
	d := s.grant
	if d.Allowed && isFirst {
		s.left--
		d.Granted, d.Remaining = 1, d.Remaining+s.left
	}
	return d
}

func (p *prefetcher) keep(kept *stock) {
	if old := p.stocks[kept.key]; old != nil {
		p.drop(old)
	}
	p.stocks[kept.key] = p.order.PushBack(kept)
	if p.order.Len() > stocksMax {
		p.drop(p.order.Front())
	}
}

// forget drops the permits of a key, and those on their way that no caller waits for.
func (p *prefetcher) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.stocks[key]; kept != nil {
		p.drop(kept)
	}
	delete(p.open, key)
}

// close lets no fetch start, waits for those under way, and returns the permits to refund.
func (p *prefetcher) close() []*stock {
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	p.fetches.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []*stock
	now := time.Now()
	for element := p.order.Front(); element != nil; element = element.Next() {
		if kept := element.Value.(*stock); kept.left > 0 && now.Before(kept.expiresAt) {
			left = append(left, kept)
		}
	}
	p.order.Init()
	clear(p.stocks)
	return left
}

// noneLeft denies a caller whose fetch brought too few permits. Its retry time is the grant's
// reset; in a bucket, which refills evenly, the earlier time when one unit is back.
func noneLeft(rule *Rule, grant Decision) Decision {
	after := grant.ResetAfter
	if rule.kind == KindGCRA || rule.kind == KindTokenBucket {
		others := time.Duration(rule.perUnit() * float64(rule.limit-1))
		after = max(time.Millisecond, after-others.Truncate(time.Millisecond))
	}
	grant.Allowed, grant.WouldAllow, grant.Granted, grant.Remaining = false, false, 0, 0
	grant.RetryAfter, grant.WouldRetryAfter, grant.Source = after, after, SourceLocal
	return grant
}

// refundStocks refunds the permits that were not spent, also those on their way, until ctx ends.
// The channel is closed when it has.
func (l *Limiter) refundStocks(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		kept := l.stocks.close()
		next := make(chan *stock, len(kept))
		for _, one := range kept {
			next <- one
		}
		close(next)
		var all sync.WaitGroup
		// As many at a time as there may be connections.
		for range min(len(kept), openMax, l.options.maxInFlight) {
			all.Go(func() {
				for one := range next {
					l.refundStock(ctx, one)
				}
			})
		}
		all.Wait()
	}()
	return ended
}

func (l *Limiter) refundStock(ctx context.Context, kept *stock) {
	if ctx.Err() != nil {
		return
	}
	c := oneCall("REFUND", &keyedItem{rule: kept.rule, key: kept.key, cost: kept.left})
	c.isLast = true
	_, _ = l.decider.send(ctx, c)
}
