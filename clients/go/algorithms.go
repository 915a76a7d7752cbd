package throttle

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"
)

// Must returns the rule, or panics if it is invalid. It is for rules that a program creates once,
// at its start.
func Must(rule *Rule, err error) *Rule {
	if err != nil {
		panic("throttle: " + err.Error())
	}
	return rule
}

// GCRA returns a rule that allows burst units at once, then rate units per period. The server keeps
// one timestamp per key. It is the default choice.
func GCRA(
	name string, burst, rate int64, period time.Duration, options ...RuleOption,
) (*Rule, error) {
	return rateRule(KindGCRA, "GCRA", "burst", name, burst, rate, period, options)
}

// TokenBucket returns a bucket that starts full and gains rate units per period, for limits that
// change at run time.
func TokenBucket(
	name string, capacity, rate int64, period time.Duration, options ...RuleOption,
) (*Rule, error) {
	const word = "TOKENBUCKET"
	return rateRule(KindTokenBucket, word, "capacity", name, capacity, rate, period, options)
}

// LeakyBucket returns a queue that drains at rate units per period. An allowed call has a
// RetryAfter: the time to wait before it acts. The capacity is the length of the queue.
func LeakyBucket(
	name string, capacity, rate int64, period time.Duration, options ...RuleOption,
) (*Rule, error) {
	const word = "LEAKYBUCKET"
	return rateRule(KindLeakyBucket, word, "capacity", name, capacity, rate, period, options)
}

const (
	maxRefill = 36_525 * 24 * time.Hour
	maxRate   = 1_000_000_000
)

func rateRule(
	kind Kind, word, argument, name string, burst, rate int64, period time.Duration,
	options []RuleOption,
) (*Rule, error) {
	err := firstError(checkInt(argument, burst, 1, maxUnits), checkInt("rate", rate, 1, maxUnits),
		checkDuration("period", period))
	if err != nil {
		return nil, err
	}
	refill := float64(burst) * float64(period) / float64(rate)
	if refill > float64(maxRefill) {
		return nil, invalid(argument, "at most 36525 days to refill from empty")
	}
	if float64(rate) > maxRate*period.Seconds() {
		return nil, invalid("rate", fmt.Sprintf("at most %d per second", maxRate))
	}
	return buildRule(&Rule{
		kind: kind, name: name, limit: burst, rate: rate, period: period,
		window: time.Duration(math.Ceil(refill)),
		words:  []string{word, intWord(burst), intWord(rate), durationWord(period)},
	}, options)
}

// Fixed returns a counter per window. A window opens at the first allowed call, or with [Aligned]
// at multiples of its length since 1970.
func Fixed(
	name string, limit int64, window time.Duration, options ...RuleOption,
) (*Rule, error) {
	return windowRule(KindFixed, "FIXED", name, limit, window, options)
}

// Sliding returns a sliding window: it counts the current window and a decreasing part of the one
// before.
func Sliding(
	name string, limit int64, window time.Duration, options ...RuleOption,
) (*Rule, error) {
	return windowRule(KindSliding, "SLIDING", name, limit, window, options)
}

// SlidingLog returns a rule that never allows more than limit units in any window. The server
// stores the instants of the calls; see [Slots] for large limits.
func SlidingLog(
	name string, limit int64, window time.Duration, options ...RuleOption,
) (*Rule, error) {
	return windowRule(KindSlidingLog, "SLIDINGLOG", name, limit, window, options)
}

func windowRule(
	kind Kind, word, name string, limit int64, window time.Duration, options []RuleOption,
) (*Rule, error) {
	err := firstError(checkInt("limit", limit, 1, maxUnits), checkDuration("window", window))
	if err != nil {
		return nil, err
	}
	return buildRule(&Rule{
		kind: kind, name: name, limit: limit, window: window,
		words: []string{word, intWord(limit), durationWord(window)},
	}, options)
}

// Backoff returns a rule for logins: some attempts without delay, then a delay that doubles with
// each further attempt, from base to longest. It resets after forget without an allowed attempt.
func Backoff(
	name string, attempts int64, base, longest, forget time.Duration, options ...RuleOption,
) (*Rule, error) {
	err := firstError(checkInt("attempts", attempts, 1, 1_000_000), checkDuration("base", base),
		checkDuration("longest", longest), checkDuration("forget", forget))
	switch {
	case err != nil:
		return nil, err
	case base > longest:
		return nil, invalid("base", "at most the longest delay")
	case longest >= forget:
		return nil, invalid("forget", "more than the longest delay")
	}
	words := []string{"BACKOFF", intWord(attempts)}
	for _, d := range []time.Duration{base, longest, forget} {
		words = append(words, durationWord(d))
	}
	return buildRule(&Rule{kind: KindBackoff, name: name, limit: attempts, words: words}, options)
}

// Unit is the period of a quota.
type Unit string

// The calendar periods.
const (
	Day     Unit = "day"
	Week    Unit = "week"
	Month   Unit = "month"
	Quarter Unit = "quarter"
	Year    Unit = "year"
)

// Quota returns an allowance per calendar period, in UTC or in the time zone of [Zone].
func Quota(name string, limit int64, unit Unit, options ...RuleOption) (*Rule, error) {
	if err := checkInt("limit", limit, 1, maxUnits); err != nil {
		return nil, err
	}
	if !slices.Contains([]Unit{Day, Week, Month, Quarter, Year}, unit) {
		return nil, invalid("unit", "day, week, month, quarter or year")
	}
	rule := &Rule{kind: KindQuota, name: name, limit: limit}
	rule.words = []string{"QUOTA", intWord(limit), string(unit)}
	switch unit {
	case Day:
		rule.window = 24 * time.Hour
	case Week:
		rule.window = 7 * 24 * time.Hour
	}
	return buildRule(rule, options)
}

// Lease returns a rule that allows limit holders at once. A permit expires after ttl unless it is
// renewed; [Limiter.Lease] takes one.
func Lease(
	name string, limit int64, ttl time.Duration, options ...RuleOption,
) (*Rule, error) {
	err := firstError(checkInt("limit", limit, 1, 1_000_000), checkDuration("ttl", ttl))
	if err != nil {
		return nil, err
	}
	words := []string{"LEASE", intWord(limit), durationWord(ttl)}
	return buildRule(&Rule{
		kind: KindLease, name: name, limit: limit, ttl: ttl, words: words,
	}, options)
}

// Policy returns a limit that the server stores under a name. See [Variants] and [Default].
func Policy(name string, options ...RuleOption) (*Rule, error) {
	return buildRule(&Rule{kind: KindPolicy, name: name, words: []string{"USE", name}}, options)
}

var (
	zones  = regexp.MustCompile(`^[A-Za-z0-9_+/-]+$`)
	starts = map[string]*regexp.Regexp{
		"week":  regexp.MustCompile(`(?i)^(mon|tue|wed|thu|fri|sat|sun)$`),
		"month": regexp.MustCompile(`^([1-9]|[12]\d|3[01])$`),
		"year":  regexp.MustCompile(`^([1-9]|1[0-2])$`),
	}
)

// buildRule applies the options to a rule and validates it.
func buildRule(rule *Rule, options []RuleOption) (*Rule, error) {
	given := ruleOptions{localShare: 1, count: CountAll}
	for _, option := range options {
		if option == nil {
			return nil, invalid("options", "no nil")
		}
		option.applyRule(&given)
	}
	if !isName(rule.name) {
		return nil, invalid("name", "1 to 64 of A-Z a-z 0-9 . _ : / -")
	}
	if err := firstError(given.fit(rule), given.check(rule)); err != nil {
		return nil, err
	}
	rule.onError, rule.localShare = given.onError, given.localShare
	rule.prefetch, rule.count = given.prefetch, given.count
	rule.command = "RL." + rule.words[0]
	rule.text = joined(rule.words)
	rule.local = rule.decider().localAlgorithm(rule.localShare)
	rule.whole = rule.decider().localAlgorithm(1)
	if rule.onError == Local && rule.local == nil {
		return nil, noLocal(rule)
	}
	return rule, nil
}

func noLocal(rule *Rule) error {
	return invalid("onError", "allow or deny: "+rule.name+" has no local limit")
}
