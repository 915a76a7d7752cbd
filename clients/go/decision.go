package throttle

import (
	"fmt"
	"math"
	"time"
)

// Source says what made a decision.
type Source string

// The sources of decisions.
const (
	// SourceServer means that the server decided.
	SourceServer Source = "server"
	// SourceLocal means that this process decided: by a prefetched permit, the denial cache, or
	// [Local].
	SourceLocal Source = "local"
	// SourceError means that the rule's [OnError] decided, because there was no final reply.
	SourceError Source = "error"
)

// Never is the RetryAfter of a call that is never allowed.
const Never = time.Duration(math.MaxInt64)

// Decision is the result of a call. Its rows are shared by its copies: do not change them.
type Decision struct {
	// Allowed says whether the call may act.
	Allowed bool
	// Limit is the limit of the rule or policy, in units; 0 if OnError decided and it is unknown.
	Limit int64
	// Remaining is the number of units left, rounded down. It may be above 0 for a denied call with
	// a cost above 1.
	Remaining int64
	// Granted is the number of units taken. A partial call may get fewer than its cost.
	Granted int64
	// RetryAfter of a denial is the time until the same call is allowed, or [Never]. Of an allowed
	// call it is 0; in a leaky bucket, the time to wait before acting.
	RetryAfter time.Duration
	// ResetAfter is the time until all units are back, if no further call takes any.
	ResetAfter time.Duration
	// Never says whether a retry never helps, such as if the cost is above the limit.
	Never bool
	// Banned says whether the subject is blocked: a retry never helps, although the cost is within
	// the limit.
	Banned bool
	// WouldAllow is Allowed without the shadow mode of a policy.
	WouldAllow bool
	// WouldRetryAfter is RetryAfter without the shadow mode of a policy.
	WouldRetryAfter time.Duration
	// Rule is the name of the rule that decided.
	Rule string
	// Rows has the decisions of the rules of a call with several, in order; otherwise it is nil.
	Rows []Decision
	// Deciding is the index of the row that decided.
	Deciding int
	// Source says what decided.
	Source Source
	// Degraded says whether OnError decided.
	Degraded bool
	// Reason says why there was no final reply; empty unless Degraded.
	Reason Reason

	rule        *Rule
	unavailable *Unavailable
}

// Err returns the error because of which OnError decided; nil unless Degraded.
func (d Decision) Err() error {
	if d.unavailable == nil {
		return nil
	}
	return d.unavailable
}

// String returns the decision in a form for logs. It has no subject.
func (d Decision) String() string {
	verdict := fmt.Sprintf("allowed, %d left", d.Remaining)
	switch {
	case d.Allowed:
	case d.Banned:
		verdict = "denied, banned"
	case d.Never:
		verdict = "denied, never"
	default:
		verdict = fmt.Sprintf("denied, again in %v", d.RetryAfter)
	}
	from := string(d.Source)
	if d.Degraded {
		from += ", " + string(d.Reason)
	}
	return fmt.Sprintf("%s: %s (%s)", d.Rule, verdict, from)
}

// decisionOf completes a decision of one rule. A retry time below 0 means never.
func decisionOf(d Decision, rule *Rule) Decision {
	d.rule, d.Rule = rule, rule.name
	if d.RetryAfter < 0 {
		d.RetryAfter, d.Never = Never, true
	}
	if d.ResetAfter < 0 {
		d.ResetAfter = Never
	}
	d.WouldAllow, d.WouldRetryAfter = d.Allowed, d.RetryAfter
	return d
}

// withoutServer returns the decision as one without the server, unless unavailable is nil.
func (d Decision) withoutServer(unavailable *Unavailable) Decision {
	if unavailable != nil {
		d.Degraded, d.Reason, d.unavailable = true, unavailable.Reason, unavailable
	}
	return d
}

// aged returns a denial as it is some time later, with this process as its source.
func (d Decision) aged(passed time.Duration) Decision {
	left := func(after time.Duration) time.Duration {
		if after == Never {
			return Never
		}
		return max(0, after-passed)
	}
	d.RetryAfter, d.WouldRetryAfter = left(d.RetryAfter), left(d.WouldRetryAfter)
	d.ResetAfter, d.Source = left(d.ResetAfter), SourceLocal
	rows := d.Rows
	d.Rows = nil
	for _, row := range rows {
		d.Rows = append(d.Rows, row.aged(passed))
	}
	return d
}

// combined returns the decision of several rules. The denial with the longest retry time decides;
// if all allow, the rule with the fewest calls left.
func combined(rows []Decision, costs []int64) Decision {
	callsLeft := func(at int) float64 {
		if costs[at] == 0 {
			return math.Inf(1)
		}
		return math.Floor(float64(rows[at].Remaining) / float64(costs[at]))
	}
	decides := func(at, than int) bool {
		one, other := rows[at], rows[than]
		switch {
		case one.Allowed != other.Allowed:
			return !one.Allowed
		case !one.Allowed:
			return one.RetryAfter > other.RetryAfter
		case callsLeft(at) != callsLeft(than):
			return callsLeft(at) < callsLeft(than)
		}
		return one.Remaining < other.Remaining
	}
	deciding := 0
	var longest time.Duration
	var unavailable *Unavailable
	for at, row := range rows {
		if decides(at, deciding) {
			deciding = at
		}
		longest = max(longest, row.RetryAfter)
		if unavailable == nil {
			unavailable = row.unavailable
		}
	}
	whole := rows[deciding]
	if whole.Allowed {
		whole.RetryAfter = longest
	}
	whole.Rows, whole.Deciding = rows, deciding
	return whole.withoutServer(unavailable)
}
