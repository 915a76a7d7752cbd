package throttle

import (
	"container/list"
	"math"
	"slices"
	"sync"
	"time"

	"redis-throttle.invalid/go/internal/algorithm"
)

// entriesMax is the largest limit of a local sliding log that has an entry for each call.
const entriesMax = 1000

// subjectsMax is the maximum number of keys in the local limiter.
const subjectsMax = 10_000

// localLimiter decides in this process, for rules whose OnError is Local.
type localLimiter struct {
	mu    sync.Mutex
	epoch time.Time
	keys  map[string]*list.Element
	// idle has the keys with units left, the least recently used first.
	idle *list.List
	// exhausted has the others. They are dropped last, because dropping one resets its limit.
	exhausted *list.List
}

type localState struct {
	key    string
	state  any
	in     *list.List
	freeAt int64
}

func newLocalLimiter() *localLimiter {
	return &localLimiter{
		epoch: time.Now(), keys: map[string]*list.Element{},
		idle: list.New(), exhausted: list.New(),
	}
}

// decide takes from all items or from none. It takes nothing if isPeek is true.
func (l *localLimiter) decide(
	items []*keyedItem, unavailable *Unavailable, isPeek bool,
) []Decision {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	verdicts := make([]algorithm.Verdict, len(items))
	rows := make([]Decision, len(items))
	allowed := true
	for at, keyed := range items {
		granted := int64(0)
		verdicts[at], granted = l.verdict(keyed, now)
		rows[at] = localDecision(keyed, verdicts[at], granted, unavailable)
		allowed = allowed && verdicts[at].Allowed
	}
	for at, keyed := range items {
		if state := verdicts[at].State; allowed && !isPeek && state != nil {
			l.keep(keyed, state, now)
		}
	}
	return rows
}

func (l *localLimiter) now() int64 { return l.epoch.Add(time.Since(l.epoch)).UnixNano() }

// verdict decides one call with its options.
func (l *localLimiter) verdict(keyed *keyedItem, now int64) (algorithm.Verdict, int64) {
	var state any
	if element := l.keys[stateKey(keyed)]; element != nil {
		state = element.Value.(*localState).state
	}
	return algorithm.Granted(keyed.localAlgorithm(), state, now, algorithm.Options{
		Cost: keyed.cost, Partial: keyed.partial, Leave: keyed.leave,
	})
}

// begin sets the state of a key once its denial is over: a bucket is full again after the reset
// time of the denial, or later if the key has used more here. A window goes on. So no denial gives
// a key a second allowance.
func (l *localLimiter) begin(keyed *keyedItem, after *knownDenial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after.isLocal {
		return
	}
	after.isLocal = true
	bucket, ok := keyed.rule.whole.(*algorithm.Bucket)
	if !ok {
		return
	}
	now, readAt := l.now(), l.epoch.Add(after.readAt.Sub(l.epoch)).UnixNano()
	state := bucket.FullAfter(readAt, after.row.ResetAfter)
	old := l.keys[stateKey(keyed)]
	if old == nil || resetAfter(bucket, old.Value.(*localState).state, now) <
		resetAfter(bucket, state, now) {
		l.keep(keyed, state, now)
	}
}

// forget removes what was counted for a key, by its share and by its whole limit.
func (l *localLimiter) forget(keyed *keyedItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, isWhole := range []bool{false, true} {
		counted := *keyed
		counted.isWhole = isWhole
		if element := l.keys[stateKey(&counted)]; element != nil {
			element.Value.(*localState).in.Remove(element)
			delete(l.keys, element.Value.(*localState).key)
		}
	}
}

func resetAfter(bucket *algorithm.Bucket, state any, now int64) time.Duration {
	return bucket.Decide(state, now, 0).ResetAfter
}

func localDecision(
	keyed *keyedItem, v algorithm.Verdict, granted int64, unavailable *Unavailable,
) Decision {
	// A cost above the local share may be within the rule's limit. Such a call may be allowed when
	// the server is back, so it has a retry time.
	limit := keyed.rule.decider().limit
	needed := keyed.cost + algorithm.LeftUnits(keyed.leave, limit)
	if v.RetryAfter == algorithm.Never && needed <= limit {
		v.RetryAfter = max(time.Second, v.ResetAfter)
	}
	if !v.Allowed {
		granted = 0
	}
	return decisionOf(Decision{
		Allowed: v.Allowed, Limit: v.Limit, Remaining: v.Remaining, Granted: granted,
		RetryAfter: v.RetryAfter, ResetAfter: v.ResetAfter, Source: SourceLocal,
	}, keyed.rule).withoutServer(unavailable)
}

// stateKey returns the key of a state. A changed rule of the same name has another one, and so has
// the whole limit.
func stateKey(keyed *keyedItem) string {
	if keyed.isWhole {
		return "whole " + keyed.rule.text + " " + keyed.key
	}
	return keyed.rule.text + " " + keyed.key
}

// localAlgorithm returns the algorithm that decides in this process.
func (k *keyedItem) localAlgorithm() algorithm.Algorithm {
	if k.isWhole {
		return k.rule.whole
	}
	return k.rule.local
}

func (l *localLimiter) keep(keyed *keyedItem, state any, now int64) {
	key := stateKey(keyed)
	if old := l.keys[key]; old != nil {
		old.Value.(*localState).in.Remove(old)
	}
	kept := &localState{key: key, state: state, in: l.idle}
	if next := keyed.localAlgorithm().Decide(state, now, 1); !next.Allowed {
		kept.in, kept.freeAt = l.exhausted, now+int64(next.RetryAfter)
	}
	l.keys[key] = kept.in.PushBack(kept)
	if len(l.keys) > subjectsMax {
		l.drop(now)
	}
}

// drop drops a key that has units left, if there is one. If most keys have none, it drops one of
// these: else no other key would be kept.
func (l *localLimiter) drop(now int64) {
	oldest := l.exhausted.Front()
	isCrowded := l.exhausted.Len() > subjectsMax/2
	if !isCrowded && l.idle.Len() > 0 &&
		(oldest == nil || oldest.Value.(*localState).freeAt > now) {
		oldest = l.idle.Front()
	}
	dropped := oldest.Value.(*localState)
	dropped.in.Remove(oldest)
	delete(l.keys, dropped.key)
}

// localAlgorithm returns the algorithm for a share of the rule, or nil if its kind has none. A
// share below one unit is one unit in a longer time, at most maxRefill: longer ones would overflow.
func (r *Rule) localAlgorithm(share float64) algorithm.Algorithm {
	wanted := float64(r.limit) * share
	limit := max(1, int64(wanted))
	switch r.kind {
	case KindGCRA, KindTokenBucket, KindLeakyBucket:
		unit := int64(min(math.Ceil(r.perUnit()/share), float64(maxRefill)))
		isQueue := r.kind == KindLeakyBucket
		return &algorithm.Bucket{IsQueue: isQueue, Limit: limit, Unit: unit}
	}
	window := int64(min(float64(r.window)/min(1, wanted), float64(maxRefill)))
	switch r.kind {
	case KindFixed:
		return &algorithm.FixedWindow{
			Limit: limit, Window: window, IsAligned: slices.Contains(r.words, "ALIGNED"),
		}
	case KindSliding:
		// The window has at most 2^20 ticks, so that units times ticks fit in 64 bits.
		return &algorithm.SlidingWindow{Limit: limit, Window: window, Tick: max(1, window>>20)}
	case KindSlidingLog:
		slot := int64(1)
		if limit > entriesMax {
			slot = window / entriesMax
		}
		return &algorithm.SlidingLog{Limit: limit, Window: window, Slot: slot}
	}
	return nil
}
