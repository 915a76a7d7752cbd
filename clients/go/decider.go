package throttle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Counters has the counts of a limiter since it was made.
type Counters struct {
	// Allowed and Denied count decisions; peeks, refunds and charges are none.
	Allowed, Denied int64
	// Degraded counts the decisions of OnError.
	Degraded int64
	// Local counts the decisions of the denial cache and of prefetched permits.
	Local int64
	// Rejected counts the commands that the server rejected.
	Rejected int64
	// Unsettled counts the ends of admissions that failed.
	Unsettled int64
}

// decider makes decisions of replies: it counts and reports them, and decides without an answer.
type decider struct {
	x       *exchange
	keys    *keys
	options *options
	local   *localLimiter
	// hooks is nil without a hook.
	hooks atomic.Pointer[[]func(Event)]

	allowed, denied, degraded, fromHere, rejected, unsettled atomic.Int64
}

// answer sends a call that OnError does not decide.
func (d *decider) answer(ctx context.Context, c *call, asks ...*ask) (any, error) {
	askedAt := time.Now()
	reply, err := d.x.send(ctx, c)
	d.noteRejection(err, asks, askedAt)
	return reply, err
}

// decided decides a call, by OnError if there is no answer.
func (d *decider) decided(
	kind EventKind, asks []*ask, decide func() (Decision, error),
) (Decision, error) {
	askedAt := time.Now()
	decision, err := decide()
	if err != nil {
		d.noteRejection(err, asks, askedAt)
		var away *Unavailable
		if !errors.As(err, &away) {
			return Decision{}, err
		}
		decision = d.withoutAnswer(asks, away, kind == EventPeek)
	}
	return d.counted(kind, decision, asks, askedAt), nil
}

// counted counts and reports a decision. The instant is zero if no call was sent.
func (d *decider) counted(
	kind EventKind, decision Decision, asks []*ask, askedAt time.Time,
) Decision {
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
		d.tell(told{kind: kind, decision: &reported, asks: asks, askedAt: askedAt})
	}
	return decision
}

// noteRejection counts and reports the error if the server rejected the command.
func (d *decider) noteRejection(err error, asks []*ask, askedAt time.Time) {
	if err == nil {
		return
	}
	var rejected *CommandRejected
	if !errors.As(err, &rejected) {
		return
	}
	d.rejected.Add(1)
	if len(asks) > 0 {
		d.tell(told{kind: EventRejected, err: err, asks: asks, askedAt: askedAt})
	}
}

func (d *decider) onErrorOf(rule *Rule) OnError {
	if rule.onError != "" {
		return rule.onError
	}
	return d.options.onError
}

// strictest returns the strictest value: Deny before Local before Allow.
func strictest(all []OnError) OnError {
	strict := map[OnError]int{Allow: 0, Local: 1, Deny: 2}
	chosen := Allow
	for _, one := range all {
		if strict[one] > strict[chosen] {
			chosen = one
		}
	}
	return chosen
}

// withoutAnswer decides each rule by its own OnError. The strictest decides the call. If a rule
// denies, no local rule takes anything.
func (d *decider) withoutAnswer(asks []*ask, away *Unavailable, isPeek bool) Decision {
	onErrors := make([]OnError, len(asks))
	var locals []*ask
	for at, a := range asks {
		onErrors[at] = d.onErrorOf(a.rule)
		if onErrors[at] == Local {
			locals = append(locals, a)
		}
	}
	chosen := strictest(onErrors)
	here := d.decideHere(locals, away, chosen == Deny, isPeek)
	rows := make([]Decision, len(asks))
	var deciding []int
	for at, a := range asks {
		if onErrors[at] == chosen {
			deciding = append(deciding, at)
		}
		if onErrors[at] == Local {
			rows[at], here = here[0], here[1:]
		} else {
			rows[at] = d.withoutState(a, onErrors[at], away)
		}
	}
	if len(asks) == 1 {
		return rows[0]
	}
	bound, costs := make([]Decision, len(deciding)), make([]int64, len(deciding))
	for at, index := range deciding {
		bound[at], costs[at] = rows[index], asks[index].cost
	}
	whole := combined(bound, costs)
	whole.Rows, whole.Deciding = rows, deciding[whole.Deciding]
	return whole
}

// decideHere decides the local rules of a call, which takes nothing if isDenied is true.
func (d *decider) decideHere(
	locals []*ask, away *Unavailable, isDenied, isPeek bool,
) []Decision {
	here := d.local.decide(locals, away, isPeek || isDenied)
	for _, row := range here {
		isDenied = isDenied || !row.Allowed
	}
	if !isDenied {
		return here
	}
	for at, a := range locals {
		if here[at].Allowed {
			untouched := *a
			untouched.cost, untouched.partial, untouched.leave = 0, false, ""
			here[at] = d.local.decide([]*ask{&untouched}, away, true)[0]
		}
	}
	return here
}

// withoutState returns the decision on a rule that has no state in this process.
func (d *decider) withoutState(a *ask, onError OnError, away *Unavailable) Decision {
	row := Decision{Allowed: onError == Allow, Limit: a.rule.limit, Source: SourceError}
	if !row.Allowed {
		row.RetryAfter = d.options.breakerPause
	}
	return decisionOf(row, a.rule).withoutAnswer(away)
}

func (d *decider) counters() Counters {
	return Counters{
		Allowed: d.allowed.Load(), Denied: d.denied.Load(), Degraded: d.degraded.Load(),
		Local: d.fromHere.Load(), Rejected: d.rejected.Load(), Unsettled: d.unsettled.Load(),
	}
}
