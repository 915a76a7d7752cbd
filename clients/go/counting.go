package throttle

import (
	"context"
	"time"
)

// CanDecide returns an [InvalidArgument] for a nil rule, and for one that cannot have its OnError:
// that of the limiter may be [Local], which not all rules can have. A middleware calls it when it
// is created, so that the error is not found at the first call.
func (l *Limiter) CanDecide(rule *Rule) error {
	switch {
	case l == nil || l.decider == nil:
		return invalid("limiter", "a limiter made by New")
	case rule == nil || rule.kind == "":
		return invalid("rule", "a rule made by a constructor of this package")
	case l.decider.onErrorOf(rule) == Local && rule.local == nil:
		return noLocal(rule)
	}
	return nil
}

// GiveBack gives back what an allowed check took, such as for a response that does not count. The
// decision is that of the item: of a call with several, its row. A prefetched permit and units of
// this process return at once; units of the server with one refund in the background, which is not
// repeated. It returns an [InvalidArgument] for a wrong item, and [ErrClosed].
func (l *Limiter) GiveBack(item Item, taken Decision, opts ...CallOption) error {
	ctx := context.Background()
	o, err := l.begin(ctx, opts)
	if err != nil {
		return err
	}
	item.leave = ""
	keyed, err := l.withKey(item, o)
	if err != nil {
		return err
	}
	// A call that shadow mode allowed took nothing.
	if !taken.WouldAllow || taken.Granted < 1 || taken.Source == SourceError {
		return nil
	}
	if taken.Source == SourceLocal {
		keyed.cost = taken.Granted
		l.denials.forget(keyed.key)
		if taken.Degraded {
			keyed.isWhole = l.decider.onErrorOf(keyed.rule) == Allow
			l.decider.local.refund(keyed)
			return nil
		}
		if l.stocks.putBack(keyed.key, keyed.rule, l.prefetchOf(keyed)) {
			return nil
		}
	}
	isStarted := l.ending.tasks.run(func(context.Context) {
		_, _ = l.refundOf(ctx, item, taken, opts)
	})
	if !isStarted {
		return ErrClosed
	}
	return nil
}

// putBack returns a permit to the stock of a key. It returns false if there is none, or a full one.
func (p *prefetcher) putBack(key string, rule *Rule, batch int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	element := p.stocks[key]
	if element == nil {
		return false
	}
	kept := element.Value.(*stock)
	if !kept.rule.isSame(rule) || kept.left >= batch || !time.Now().Before(kept.expiresAt) {
		return false
	}
	kept.left++
	return true
}

// refund returns units to a key.
func (l *localLimiter) refund(keyed *keyedItem) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	element := l.keys[stateKey(keyed)]
	if element == nil {
		return
	}
	kept := element.Value.(*localState)
	state := keyed.localAlgorithm().Add(kept.state, now, -keyed.cost)
	kept.in.Remove(element)
	delete(l.keys, kept.key)
	if state != nil {
		l.keep(keyed, state, now)
	}
}
