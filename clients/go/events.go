package throttle

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventCheck    EventKind = "check"
	EventPeek     EventKind = "peek"
	EventCharge   EventKind = "charge"
	EventRefund   EventKind = "refund"
	EventLease    EventKind = "lease"
	EventCommit   EventKind = "commit"
	EventCancel   EventKind = "cancel"
	EventRejected EventKind = "rejected"
)

// Event reports a decision, a charge, a refund, the end of an item of an admission, or a rejection.
// As a value of [log/slog] it is a group.
type Event struct {
	Kind EventKind
	// Decision is nil if the call was rejected, or got no final reply at an admission's end.
	Decision *Decision
	// Rule is the rule that decided; of a rejected call, its first.
	Rule *Rule
	// KeyHash has 16 hexadecimal digits of the subject's HMAC, under the limiter's secret or a
	// random key of the process.
	KeyHash string
	// Latency is 0 if no call was sent.
	Latency time.Duration
	// Degraded says whether OnError decided.
	Degraded bool
	// Err is the error of a rejected call, or of an end that failed; otherwise nil.
	Err error
}

// LogValue returns the event as a group of attributes.
func (e Event) LogValue() slog.Value {
	attributes := []slog.Attr{
		slog.String("kind", string(e.Kind)), slog.String("rule", e.Rule.name),
		slog.String("key_hash", e.KeyHash), slog.Duration("latency", e.Latency),
	}
	if d := e.Decision; d != nil {
		attributes = append(attributes, slog.Bool("allowed", d.Allowed),
			slog.Int64("remaining", d.Remaining), slog.String("source", string(d.Source)))
		if d.Degraded {
			attributes = append(attributes, slog.String("reason", string(d.Reason)))
		}
	}
	if e.Err != nil {
		attributes = append(attributes, slog.Any("error", e.Err))
	}
	return slog.GroupValue(attributes...)
}

// outcome is the result of a call, from which an event is built.
type outcome struct {
	kind     EventKind
	decision *Decision
	err      error
	items    []*keyedItem
	// startedAt is zero if no call was sent.
	startedAt time.Time
}

// addHook adds a hook after the others.
func (d *decider) addHook(hook func(Event)) {
	if hook == nil {
		return
	}
	for {
		before := d.hooks.Load()
		after := []func(Event){hook}
		if before != nil {
			after = append(slices.Clone(*before), hook)
		}
		if d.hooks.CompareAndSwap(before, &after) {
			return
		}
	}
}

// report calls the hooks with the event of an outcome.
func (d *decider) report(o outcome) {
	hooks := d.hooks.Load()
	if hooks == nil {
		return
	}
	deciding := o.items[0]
	event := Event{Kind: o.kind, Decision: o.decision, Err: o.err}
	if o.decision != nil {
		event.Degraded = o.decision.Degraded
		if o.decision.Deciding < len(o.items) {
			deciding = o.items[o.decision.Deciding]
		}
	}
	event.Rule, event.KeyHash = deciding.rule, d.keys.keyHash(deciding.subject)
	if !o.startedAt.IsZero() {
		event.Latency = time.Since(o.startedAt)
	}
	for _, hook := range *hooks {
		callHook(hook, event)
	}
}

func callHook(hook func(Event), event Event) {
	defer func() {
		if problem := recover(); problem != nil {
			slog.Error("redis-throttle: the hook of decisions panicked", "panic", problem)
		}
	}()
	hook(event)
}

// Counters has the counts of a limiter since it was created.
type Counters struct {
	// Allowed and Denied count decisions; peeks, refunds and charges are none.
	Allowed, Denied int64
	// Degraded counts the decisions of OnError.
	Degraded int64
	// Local counts the decisions of the denial cache, of known denials under pressure, and of
	// prefetched permits.
	Local int64
	// Rejected counts the commands that the server rejected.
	Rejected int64
	// Unsettled counts the ends of admissions that failed.
	Unsettled int64
}

// counted counts and reports a decision. The instant is zero if no call was sent.
func (d *decider) counted(
	kind EventKind, decision Decision, items []*keyedItem, startedAt time.Time,
) Decision {
	if decision.Degraded {
		d.log.note(decision.Reason)
	}
	if kind != EventPeek {
		count := &d.denied
		if decision.Allowed {
			count = &d.allowed
		}
		count.Add(1)
		switch {
		case decision.Degraded:
			d.degraded.Add(1)
		case decision.Source == SourceLocal:
			d.fromHere.Add(1)
		}
	}
	if d.hooks.Load() != nil {
		// A copy, so that without a hook no decision is allocated.
		reported := decision
		d.report(outcome{kind: kind, decision: &reported, items: items, startedAt: startedAt})
	}
	return decision
}

// noteRejection counts and reports the error if the server rejected the command.
func (d *decider) noteRejection(err error, items []*keyedItem, startedAt time.Time) {
	if err == nil {
		return
	}
	var rejected *CommandRejected
	if !errors.As(err, &rejected) {
		return
	}
	d.rejected.Add(1)
	if len(items) > 0 {
		d.report(outcome{kind: EventRejected, err: err, items: items, startedAt: startedAt})
	}
}

func (d *decider) counters() Counters {
	return Counters{
		Allowed: d.allowed.Load(), Denied: d.denied.Load(), Degraded: d.degraded.Load(),
		Local: d.fromHere.Load(), Rejected: d.rejected.Load(), Unsettled: d.unsettled.Load(),
	}
}

// logPause is the shortest time between two lines of one reason.
const logPause = time.Second

// errorLog logs the decisions without the server: the first of a reason at once, later ones with
// their number, once per second. It writes no key and no subject. A nil log writes nothing.
type errorLog struct {
	// writing is held while a timer writes, so that nothing is written after the close.
	writing sync.Mutex

	mu      sync.Mutex
	reasons map[Reason]*unlogged
	isOver  bool
}

// unlogged has the number of decisions of a reason since its last line.
type unlogged struct {
	count int
	timer *time.Timer
}

func newErrorLog(isOn bool) *errorLog {
	if !isOn {
		return nil
	}
	return &errorLog{reasons: map[Reason]*unlogged{}}
}

// note counts a decision.
func (l *errorLog) note(reason Reason) {
	if l != nil && l.isFirst(reason) {
		write(reason, 1)
	}
}

// isFirst counts a decision, and returns true if it is logged at once.
func (l *errorLog) isFirst(reason Reason) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.reasons[reason]
	if one != nil {
		one.count++
		return false
	}
	if !l.isOver {
		one = &unlogged{}
		l.reasons[reason] = one
		one.timer = time.AfterFunc(logPause, func() { l.flush(reason) })
	}
	return true
}

// flush writes a line of the decisions since the last one. Without any, the next is logged at once.
func (l *errorLog) flush(reason Reason) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if count := l.rest(reason); count > 0 {
		write(reason, count)
	}
}

// rest returns the number of decisions since the last line, and resets it.
func (l *errorLog) rest(reason Reason) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.reasons[reason]
	if one == nil {
		return 0
	}
	count := one.count
	if count == 0 {
		delete(l.reasons, reason)
	} else {
		one.count = 0
		one.timer.Reset(logPause)
	}
	return count
}

// close writes the rest.
func (l *errorLog) close() {
	if l == nil {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOver = true
	for reason, one := range l.reasons {
		one.timer.Stop()
		if one.count > 0 {
			write(reason, one.count)
		}
	}
	clear(l.reasons)
}

func write(reason Reason, count int) {
	slog.Warn(fmt.Sprintf(
		"redis-throttle: %d calls decided without the server: %s", count, reason))
}
