package throttle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// decider makes decisions from replies, or without the server. It counts and reports them.
type decider struct {
	x       *exchange
	keys    *keys
	options *options
	local   *localLimiter
	known   *knownDenials
	log     *errorLog
	// hooks is nil without a hook.
	hooks atomic.Pointer[[]func(Event)]

	allowed, denied, degraded, fromHere, rejected, unsettled atomic.Int64
}

// send sends a call that OnError does not decide.
func (d *decider) send(ctx context.Context, c *call) (any, error) {
	d.begin(c)
	reply, err := d.x.send(ctx, c)
	d.noteRejection(err, c.items, c.start.at)
	return reply, err
}

// begin notes the moment at which a call begins.
func (d *decider) begin(c *call) { c.start = callStart{time.Now(), d.known.forgotten.turn.Load()} }

// decided decides a call: by the reply, a known denial, or OnError.
func (d *decider) decided(
	kind EventKind, c *call, decide func() (Decision, error),
) (Decision, error) {
	d.begin(c)
	decision, err := decide()
	if err != nil {
		d.noteRejection(err, c.items, c.start.at)
		var unavailable *Unavailable
		switch {
		case err == errDeniedBefore:
			decision = *c.denied
		case errors.As(err, &unavailable) && c.isLastDenied(unavailable):
			decision = *c.budget().denial
		case errors.As(err, &unavailable):
			decision = d.withoutServer(c, unavailable, kind == EventPeek)
		default:
			return Decision{}, err
		}
	}
	return d.counted(kind, decision, c.items, c.start.at), nil
}

// isLastDenied returns true if the time of several calls ended after a denial.
func (c *call) isLastDenied(unavailable *Unavailable) bool {
	b := c.budget()
	return b != nil && b.left <= 0 && b.denial != nil && unavailable.Reason == ReasonOverloaded
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

// withoutServer decides a call that got no final reply. What the server last said about its keys
// still counts. Otherwise each rule is decided by its own OnError, and the strictest decides the
// call. If a rule denies, no local rule takes anything.
func (d *decider) withoutServer(c *call, unavailable *Unavailable, isPeek bool) Decision {
	now := time.Now()
	if denial, ok := d.known.deny(c, now, knownLongest); ok {
		for at := range denial.Rows {
			denial.Rows[at] = denial.Rows[at].withoutServer(unavailable)
		}
		return denial.withoutServer(unavailable)
	}
	items := c.items
	onErrors := make([]OnError, len(items))
	var locals []*keyedItem
	for at, keyed := range items {
		onErrors[at] = d.onErrorOf(keyed.rule)
		if onErrors[at] == Allow && d.isWhole(c, keyed, unavailable, now) {
			onErrors[at] = Local
		}
		if onErrors[at] == Local {
			locals = append(locals, keyed)
		}
	}
	chosen := strictest(onErrors)
	here := d.decideHere(locals, unavailable, chosen == Deny, isPeek)
	rows := make([]Decision, len(items))
	var deciding []int
	for at, keyed := range items {
		if onErrors[at] == chosen {
			deciding = append(deciding, at)
		}
		if onErrors[at] == Local {
			rows[at], here = here[0], here[1:]
		} else {
			rows[at] = d.withoutState(keyed, onErrors[at], unavailable)
		}
	}
	if len(items) == 1 {
		return rows[0]
	}
	bound, costs := make([]Decision, len(deciding)), make([]int64, len(deciding))
	for at, index := range deciding {
		bound[at], costs[at] = rows[index], items[index].cost
	}
	whole := combined(bound, costs)
	whole.Rows, whole.Deciding = rows, deciding[whole.Deciding]
	return whole
}

// isWhole returns true if this process keeps the whole limit of a rule whose OnError is Allow: the
// server denied the key before, or there are too many calls, also for the caller's own deadline. A
// lease or a reservation is never decided here.
func (d *decider) isWhole(c *call, keyed *keyedItem, unavailable *Unavailable, now time.Time) bool {
	if keyed.rule.whole == nil || keyed.isHeld() {
		return false
	}
	var after *knownDenial
	if c.isKnowable {
		after = d.known.after(keyed, now)
	}
	keyed.isWhole = after != nil || unavailable.Reason == ReasonOverloaded || unavailable.isOwn
	if after != nil {
		d.local.begin(keyed, after)
	}
	return keyed.isWhole
}

// decideHere decides the local rules of a call, which takes nothing if isDenied is true.
func (d *decider) decideHere(
	locals []*keyedItem, unavailable *Unavailable, isDenied, isPeek bool,
) []Decision {
	here := d.local.decide(locals, unavailable, isPeek || isDenied)
	for _, row := range here {
		isDenied = isDenied || !row.Allowed
	}
	if !isDenied {
		return here
	}
	for at, keyed := range locals {
		if here[at].Allowed {
			untouched := *keyed
			untouched.cost, untouched.partial, untouched.leave = 0, false, ""
			here[at] = d.local.decide([]*keyedItem{&untouched}, unavailable, true)[0]
		}
	}
	return here
}

// withoutState returns the decision on a rule that has no state in this process.
func (d *decider) withoutState(
	keyed *keyedItem, onError OnError, unavailable *Unavailable,
) Decision {
	row := Decision{Allowed: onError == Allow, Limit: keyed.rule.limit, Source: SourceError}
	if !row.Allowed {
		row.RetryAfter = d.options.breakerPause
	}
	return decisionOf(row, keyed.rule).withoutServer(unavailable)
}
