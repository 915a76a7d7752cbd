package throttle

import (
	"log/slog"
	"slices"
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
	// Decision is nil if the call was rejected, or got no answer at the end of an admission.
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

// told is the result of a call, before it is an event.
type told struct {
	kind     EventKind
	decision *Decision
	err      error
	asks     []*ask
	// askedAt is zero if no call was sent.
	askedAt time.Time
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

// tell calls the hooks.
func (d *decider) tell(what told) {
	hooks := d.hooks.Load()
	if hooks == nil {
		return
	}
	deciding := what.asks[0]
	event := Event{Kind: what.kind, Decision: what.decision, Err: what.err}
	if what.decision != nil {
		event.Degraded = what.decision.Degraded
		if what.decision.Deciding < len(what.asks) {
			deciding = what.asks[what.decision.Deciding]
		}
	}
	event.Rule, event.KeyHash = deciding.rule, d.keys.keyHash(deciding.subject)
	if !what.askedAt.IsZero() {
		event.Latency = time.Since(what.askedAt)
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
