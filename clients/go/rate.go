package throttle

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Rate is a number of units per period, as text: "10/minute", "5 per 2 hours" or "20/90s". Its
// methods make rules, and return an [InvalidArgument] for a text that is no rate:
//
//	api := throttle.Must(throttle.Rate("10/minute").GCRA("api", 20))
//
// The units are from 1 to 10^12, and the period from 1 ms to 366 days. "/" may have a space on each
// side; "per" has one. The period is a second (sec, s), a minute (min, m), an hour (hr, h) or a day
// (d), several of them, such as "2 hours", or a duration of ms, s, m, h or d with at most six
// decimals, such as "1.5h". A [Quota] counts months and years.
type Rate string

var (
	rateText   = regexp.MustCompile(`^([0-9]+)(?: ?/ ?| per )(.+)$`)
	periodText = regexp.MustCompile(`^(?:([0-9]+) ?)?([a-z]+)$`)
	// decimalText matches a period of milliseconds or with decimals.
	decimalText = regexp.MustCompile(`^([0-9]+)(?:\.([0-9]{1,6}))?(ms|s|m|h|d)$`)
	unitNames   = map[string]time.Duration{
		"second": time.Second, "sec": time.Second, "s": time.Second,
		"minute": time.Minute, "min": time.Minute, "m": time.Minute,
		"hour": time.Hour, "hr": time.Hour, "h": time.Hour,
		"day": 24 * time.Hour, "d": 24 * time.Hour,
		"seconds": time.Second, "minutes": time.Minute, "hours": time.Hour, "days": 24 * time.Hour,
	}
)

// Parse returns the units and the period.
func (r Rate) Parse() (units int64, period time.Duration, err error) {
	parts := rateText.FindStringSubmatch(string(r))
	if parts == nil {
		return 0, 0, invalid("rate", `a text such as "10/minute", "5 per 2 hours" or "20/90s"`)
	}
	units, err = strconv.ParseInt(parts[1], 10, 64)
	if err != nil || units < 1 || units > maxUnits {
		return 0, 0, invalid("rate", "units from 1 to 10^12")
	}
	period, ok := periodOf(parts[2])
	switch {
	case !ok && (strings.Contains(parts[2], "month") || strings.Contains(parts[2], "year")):
		return 0, 0, invalid("rate", "a period of days or less; a quota counts months and years")
	case !ok:
		return 0, 0, invalid("rate", `a period such as "minute", "2 hours" or "90s"`)
	}
	if checkDuration("rate", period) != nil {
		return 0, 0, invalid("rate", "a period from 1ms to 366 days, in whole microseconds")
	}
	return units, period, nil
}

// periodOf returns the period of a rate; 0 if it is too long.
func periodOf(text string) (period time.Duration, ok bool) {
	if parts := periodText.FindStringSubmatch(text); parts != nil {
		if unit, ok := unitNames[parts[2]]; ok {
			if parts[1] == "" {
				return unit, true
			}
			return scaled(parts[1], "", unit), true
		}
	}
	parts := decimalText.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	unit := time.Millisecond
	if parts[3] != "ms" {
		unit = unitNames[parts[3]]
	}
	return scaled(parts[1], parts[2], unit), true
}

// scaled returns a decimal number of units, without rounding; 0 if it is too long. A millionth of
// each unit is a whole number of nanoseconds.
func scaled(whole, decimals string, unit time.Duration) time.Duration {
	count, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || count > int64(maxDuration/unit) {
		return 0
	}
	millionths, _ := strconv.ParseInt(decimals+"000000"[len(decimals):], 10, 64)
	return time.Duration(count)*unit + time.Duration(millionths)*(unit/1_000_000)
}

// GCRA returns the rule of [GCRA] that allows burst units at once, then this rate.
func (r Rate) GCRA(name string, burst int64, options ...RuleOption) (*Rule, error) {
	return r.bucket(GCRA, name, burst, options)
}

// TokenBucket returns the rule of [TokenBucket] that gains units at this rate.
func (r Rate) TokenBucket(name string, capacity int64, options ...RuleOption) (*Rule, error) {
	return r.bucket(TokenBucket, name, capacity, options)
}

// LeakyBucket returns the rule of [LeakyBucket] that drains at this rate.
func (r Rate) LeakyBucket(name string, capacity int64, options ...RuleOption) (*Rule, error) {
	return r.bucket(LeakyBucket, name, capacity, options)
}

// Fixed returns the rule of [Fixed] whose limit is the units, and whose window is the period.
func (r Rate) Fixed(name string, options ...RuleOption) (*Rule, error) {
	return r.window(Fixed, name, options)
}

// Sliding returns the rule of [Sliding] whose limit is the units, and whose window is the period.
func (r Rate) Sliding(name string, options ...RuleOption) (*Rule, error) {
	return r.window(Sliding, name, options)
}

// SlidingLog returns the rule of [SlidingLog] that allows the units in any period.
func (r Rate) SlidingLog(name string, options ...RuleOption) (*Rule, error) {
	return r.window(SlidingLog, name, options)
}

func (r Rate) bucket(
	build func(string, int64, int64, time.Duration, ...RuleOption) (*Rule, error),
	name string, burst int64, options []RuleOption,
) (*Rule, error) {
	units, period, err := r.Parse()
	if err != nil {
		return nil, err
	}
	return build(name, burst, units, period, options...)
}

func (r Rate) window(
	build func(string, int64, time.Duration, ...RuleOption) (*Rule, error),
	name string, options []RuleOption,
) (*Rule, error) {
	units, period, err := r.Parse()
	if err != nil {
		return nil, err
	}
	return build(name, units, period, options...)
}
