package throttle

import (
	"slices"
	"strings"
	"time"

	"redis-throttle.invalid/go/internal/algorithm"
)

// Kind is the algorithm of a rule.
type Kind string

// The algorithms.
const (
	KindGCRA        Kind = "gcra"
	KindTokenBucket Kind = "token_bucket"
	KindLeakyBucket Kind = "leaky_bucket"
	KindFixed       Kind = "fixed"
	KindSliding     Kind = "sliding"
	KindSlidingLog  Kind = "sliding_log"
	KindBackoff     Kind = "backoff"
	KindQuota       Kind = "quota"
	KindLease       Kind = "lease"
	KindPolicy      Kind = "policy"
)

// OnError decides the calls without a final reply.
type OnError string

// The ways to decide without the server.
const (
	// Allow allows the call. It is the default.
	Allow OnError = "allow"
	// Deny denies the call.
	Deny OnError = "deny"
	// Local enforces the limit in this process. It is not possible for a backoff, a quota, a lease
	// and a policy without a default.
	Local OnError = "local"
)

// Count says which responses of a middleware count. What does not count is given back.
type Count struct {
	word string
	is   func(status int) bool
}

var (
	// CountAll counts all responses. It is the default.
	CountAll = Count{word: "all"}
	// CountFailures counts responses with a status of 400 or more. A backoff that counts failures
	// limits failed logins.
	CountFailures = Count{word: "failures", is: func(status int) bool { return status >= 400 }}
)

// CountIf counts the responses whose status the function accepts. The status is 500 after a panic.
// If the client was gone before the response began, the request counts without a call of the
// function: a client that resets its requests would else have no limit.
func CountIf(counts func(status int) bool) Count { return Count{word: "function", is: counts} }

// IsAll returns true if every response counts.
func (c Count) IsAll() bool { return c.is == nil }

// Counts returns true if a response with this status counts.
func (c Count) Counts(status int) bool { return c.is == nil || c.is(status) }

// Rule is a limit with a name. It does not change. The constructors, such as [GCRA], validate it.
type Rule struct {
	kind  Kind
	name  string
	words []string
	// command is the module's command, such as RL.GCRA.
	command string
	// text is the words joined by spaces.
	text  string
	limit int64
	// window is the window or the time to refill; 0 if the rule has neither.
	window time.Duration
	// rate and period are those of a bucket.
	rate   int64
	period time.Duration
	// ttl is the ttl of a lease.
	ttl time.Duration
	// fallback is the default of a policy.
	fallback   *Rule
	onError    OnError
	localShare float64
	prefetch   int64
	count      Count
	// local decides in this process; nil if the kind cannot.
	local algorithm.Algorithm
	// whole is local with the whole limit.
	whole algorithm.Algorithm
}

// Name returns the name, which is part of the keys and of the headers.
func (r *Rule) Name() string { return r.name }

// Kind returns the algorithm.
func (r *Rule) Kind() Kind { return r.kind }

// Limit returns the rule's limit in units; 0 for a policy without a default, whose limit only the
// server knows.
func (r *Rule) Limit() int64 { return r.limit }

// Window returns the window or the time to refill from empty; 0 if the rule has neither.
func (r *Rule) Window() time.Duration { return r.window }

// Count returns which responses of a middleware count.
func (r *Rule) Count() Count { return r.count }

// TakesCost returns false for a lease and a backoff, whose calls all take one unit.
func (r *Rule) TakesCost() bool {
	return !slices.Contains([]Kind{KindLease, KindBackoff}, r.decider().kind)
}

// String returns the name, and the rule as the server reads it.
func (r *Rule) String() string { return r.name + ": " + r.text }

// Of returns the item of a subject: the user, address or tenant that is limited.
func (r *Rule) Of(subject string) Item {
	item := Item{rule: r, subject: subject, cost: 1}
	if r == nil || r.kind == "" {
		item.err = invalid("rule", "a rule made by a constructor of this package")
	}
	return item
}

// perUnit returns the nanoseconds in which a bucket gains a unit.
func (r *Rule) perUnit() float64 { return float64(r.period) / float64(r.rate) }

// decider returns the default of a policy that has one, otherwise the rule.
func (r *Rule) decider() *Rule {
	if r.fallback != nil {
		return r.fallback
	}
	return r
}

// isPrefetchable returns true if permits of the rule can be kept.
func (r *Rule) isPrefetchable() bool {
	switch r.kind {
	case KindLease, KindBackoff, KindLeakyBucket, KindPolicy:
		return false
	}
	return true
}

// isSame returns true if two rules have the same content. A program may make a rule per request.
func (r *Rule) isSame(other *Rule) bool {
	return r == other || r.name == other.name && r.text == other.text
}

// withOptions returns the rule's words with the options of a call where the server reads them.
func (r *Rule) withOptions(options []string) []string {
	if len(options) == 0 {
		return r.words
	}
	at := len(r.words)
	switch {
	case r.kind == KindPolicy:
		// The words after FOR and DEFAULT belong to the variants and the default.
		at = 2
	case r.words[at-1] == "ALIGNED":
		at--
	case at > 1 && r.words[at-2] == "SLOTS":
		at -= 2
	}
	return slices.Insert(slices.Clone(r.words), at, options...)
}

func isName(name string) bool {
	const other = "._:/-"
	for _, c := range []byte(name) {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !isLetter && strings.IndexByte(other, c) < 0 {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 64
}
