package throttle

import (
	"container/list"
	"strconv"
	"strings"
	"sync"
	"time"
)

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

// decide takes from all asks or from none. It takes nothing if isPeek is true.
func (l *localLimiter) decide(asks []*ask, away *Unavailable, isPeek bool) []Decision {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	verdicts := make([]verdict, len(asks))
	rows := make([]Decision, len(asks))
	allowed := true
	for at, a := range asks {
		granted := int64(0)
		verdicts[at], granted = l.verdict(a, now)
		rows[at] = localDecision(a, verdicts[at], granted, away)
		allowed = allowed && verdicts[at].allowed
	}
	for at, a := range asks {
		if state := verdicts[at].state; allowed && !isPeek && state != nil {
			l.keep(a, state, now)
		}
	}
	return rows
}

func (l *localLimiter) now() int64 { return l.epoch.Add(time.Since(l.epoch)).UnixNano() }

// verdict decides one call with its options.
func (l *localLimiter) verdict(a *ask, now int64) (verdict, int64) {
	var state any
	if element := l.keys[stateKey(a)]; element != nil {
		state = element.Value.(*localState).state
	}
	decide := func(cost int64) verdict { return a.rule.local.decide(state, now, cost) }
	if !a.partial && a.leave == "" {
		return decide(a.cost), a.cost
	}
	free := decide(0)
	left := leftUnits(a.leave, free.limit)
	cost := a.cost
	if a.partial {
		cost = min(cost, max(1, free.remaining-left))
	}
	whole := decide(cost + left)
	if whole.allowed {
		return decide(cost), cost
	}
	return whole, cost
}

func localDecision(a *ask, v verdict, granted int64, away *Unavailable) Decision {
	// A cost above the local share may be within the rule's limit. Such a call may be allowed when
	// the server is back, so it has a retry time.
	limit := a.rule.decider().limit
	if v.retryAfter == never && a.cost+leftUnits(a.leave, limit) <= limit {
		v.retryAfter = max(time.Second, v.resetAfter)
	}
	if !v.allowed {
		granted = 0
	}
	return decisionOf(Decision{
		Allowed: v.allowed, Limit: v.limit, Remaining: v.remaining, Granted: granted,
		RetryAfter: v.retryAfter, ResetAfter: v.resetAfter, Source: SourceLocal,
	}, a.rule).withoutAnswer(away)
}

// leftUnits returns the units that a call leaves to others.
func leftUnits(leave string, limit int64) int64 {
	share, isShare := strings.CutSuffix(leave, "%")
	units, _ := strconv.ParseInt(share, 10, 64)
	if isShare {
		return limit/100*units + limit%100*units/100
	}
	return units
}

// stateKey returns the key of a state. A changed rule of the same name has another one.
func stateKey(a *ask) string { return a.rule.text + " " + a.key }

func (l *localLimiter) keep(a *ask, state any, now int64) {
	key := stateKey(a)
	if old := l.keys[key]; old != nil {
		old.Value.(*localState).in.Remove(old)
	}
	kept := &localState{key: key, state: state, in: l.idle}
	if next := a.rule.local.decide(state, now, 1); !next.allowed {
		kept.in, kept.freeAt = l.exhausted, now+int64(next.retryAfter)
	}
	l.keys[key] = kept.in.PushBack(kept)
	if len(l.keys) > subjectsMax {
		l.drop(now)
	}
}

// drop drops a key that has units left, if there is one.
func (l *localLimiter) drop(now int64) {
	oldest := l.exhausted.Front()
	if l.idle.Len() > 0 && (oldest == nil || oldest.Value.(*localState).freeAt > now) {
		oldest = l.idle.Front()
	}
	dropped := oldest.Value.(*localState)
	dropped.in.Remove(oldest)
	delete(l.keys, dropped.key)
}
