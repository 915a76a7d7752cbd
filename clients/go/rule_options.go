package throttle

import (
	"slices"
	"strings"
)

// RuleOption is an option of a rule's constructor.
type RuleOption interface{ applyRule(*ruleOptions) }

// SharedOption is an option of a rule, and of [New] for all rules without their own.
type SharedOption interface {
	RuleOption
	Option
}

type ruleOptions struct {
	onError    OnError
	hasOnError bool
	localShare float64
	prefetch   int64
	isFetching bool
	count      Count
	isAligned  bool
	slots      *int64
	zone       *string
	start      *string
	variants   []string
	fallback   *Rule
	hasDefault bool
}

type ruleOption func(*ruleOptions)

func (o ruleOption) applyRule(options *ruleOptions) { o(options) }

type sharedOption struct {
	ruleOption
	option
}

// WithOnError decides the calls without a final reply. The default is [Allow].
func WithOnError(onError OnError) SharedOption {
	return sharedOption{
		func(o *ruleOptions) { o.onError, o.hasOnError = onError, true },
		func(o *options) { o.onError = onError },
	}
}

// WithPrefetch sets the number of permits, from 1 to 10,000, that one call fetches and this process
// spends; for hot keys. For each process a window may then allow up to this number of units above
// the limit. Not for leaky buckets, backoffs, leases and policies. The default is 1.
func WithPrefetch(permits int64) SharedOption {
	return sharedOption{
		func(o *ruleOptions) { o.prefetch, o.isFetching = permits, true },
		func(o *options) { o.prefetch = permits },
	}
}

// WithLocalShare sets the share of the limit, above 0 and at most 1, that this process allows by
// itself under [Local]. With ten processes use 0.1, or together they allow ten times the limit. The
// default is 1.
func WithLocalShare(share float64) RuleOption {
	return ruleOption(func(o *ruleOptions) { o.localShare = share })
}

// WithCount sets which responses of a middleware count. Not for leases. The default is [CountAll].
func WithCount(count Count) RuleOption {
	return ruleOption(func(o *ruleOptions) { o.count = count })
}

// Aligned makes the windows of [Fixed] begin at multiples of their length since 1970.
func Aligned() RuleOption { return ruleOption(func(o *ruleOptions) { o.isAligned = true }) }

// Slots sets the number of parts of the window, from 16 to 65,536, for each of which [SlidingLog]
// stores one entry if its limit is above that number. A call may then count for up to a part
// longer. The default is the server's setting, which is 1024.
func Slots(parts int64) RuleOption {
	return ruleOption(func(o *ruleOptions) { o.slots = &parts })
}

// Zone sets the time zone of [Quota], a name of the IANA database such as "Europe/Berlin".
func Zone(name string) RuleOption { return ruleOption(func(o *ruleOptions) { o.zone = &name }) }

// Start sets the start of a period of [Quota]: mon to sun of a week, 1 to 31 of a month, 1 to 12 of
// a year.
func Start(of string) RuleOption { return ruleOption(func(o *ruleOptions) { o.start = &of }) }

// Variants sets up to two names that the server looks up before that of the [Policy], the most
// specific one first, such as "tenant:acme", "plan:gold".
func Variants(names ...string) RuleOption {
	return ruleOption(func(o *ruleOptions) { o.variants = append(o.variants, names...) })
}

// Default sets the rule that applies if the server has no [Policy] of the name, or no module.
func Default(rule *Rule) RuleOption {
	return ruleOption(func(o *ruleOptions) { o.fallback, o.hasDefault = rule, true })
}

// fit appends the options of one kind to the rule's words. It returns an error for an option of
// another kind.
func (o *ruleOptions) fit(rule *Rule) error {
	if o.isAligned {
		if rule.kind != KindFixed {
			return invalid("aligned", "a fixed window")
		}
		rule.words = append(rule.words, "ALIGNED")
	}
	if o.slots != nil {
		if rule.kind != KindSlidingLog {
			return invalid("slots", "a sliding log")
		}
		if err := checkInt("slots", *o.slots, 16, 65_536); err != nil {
			return err
		}
		rule.words = append(rule.words, "SLOTS", intWord(*o.slots))
	}
	return firstError(o.fitQuota(rule), o.fitPolicy(rule))
}

func (o *ruleOptions) fitQuota(rule *Rule) error {
	isQuota := rule.kind == KindQuota
	if o.zone != nil {
		if !isQuota || !zones.MatchString(*o.zone) {
			return invalid("zone", "a quota's time zone, such as Europe/Berlin")
		}
		rule.words = append(rule.words, "ZONE", *o.zone)
	}
	if o.start != nil {
		if !isQuota || !isStart(rule.words[2], *o.start) {
			return invalid("start", "mon to sun of a week, 1 to 31 of a month, 1 to 12 of a year")
		}
		rule.words = append(rule.words, "START", *o.start)
	}
	return nil
}

func isStart(unit, of string) bool {
	form := starts[unit]
	return form != nil && form.MatchString(of)
}

func (o *ruleOptions) fitPolicy(rule *Rule) error {
	isPolicy := rule.kind == KindPolicy
	areNames := !slices.ContainsFunc(o.variants, func(name string) bool { return !isName(name) })
	if len(o.variants) > 0 && !isPolicy || len(o.variants) > 2 || !areNames {
		return invalid("variants", "at most two names of policies")
	}
	for _, variant := range o.variants {
		rule.words = append(rule.words, "FOR", variant)
	}
	if !o.hasDefault {
		return nil
	}
	other := o.fallback
	if !isPolicy || other == nil || other.kind == "" || other.kind == KindLease ||
		other.kind == KindPolicy {
		return invalid("default", "a policy's rule that is neither a lease nor a policy")
	}
	rule.fallback, rule.limit = other, other.limit
	rule.words = append(append(rule.words, "DEFAULT"), other.words...)
	return nil
}

// check validates the options that every rule has.
func (o *ruleOptions) check(rule *Rule) error {
	if o.hasOnError && !o.onError.isKnown() {
		return invalid("onError", "Allow, Deny or Local")
	}
	if !(o.localShare > 0 && o.localShare <= 1) {
		return invalid("localShare", "a number above 0 and at most 1")
	}
	if o.isFetching {
		if err := checkInt("prefetch", o.prefetch, 1, maxPrefetch); err != nil {
			return err
		}
		if o.prefetch > 1 && !rule.isPrefetchable() {
			return invalid("prefetch", "1 for "+rule.name+", whose permits cannot be kept")
		}
	}
	if o.count.word == "" || o.count.word == "function" && o.count.is == nil {
		return invalid("count", "CountAll, CountFailures or CountIf of a function")
	}
	if o.count.word != "all" && rule.kind == KindLease {
		return invalid("count", "CountAll for a lease, which ends with the response")
	}
	return nil
}

func (o OnError) isKnown() bool { return o == Allow || o == Deny || o == Local }

func joined(words []string) string { return strings.Join(words, " ") }
