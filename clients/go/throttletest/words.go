package throttletest

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/algorithm"
)

// slotsDefault is the server's setting for sliding logs without SLOTS.
const slotsDefault = 1024

// decider is an algorithm of the server.
type decider interface {
	algorithm.Algorithm
	// Over returns the time until the limit is not exceeded.
	Over(state any, now int64) time.Duration
}

// call is what a command asks of one rule.
type call struct {
	decider
	// word is the rule's first word. The state of a key belongs to one.
	word    string
	options algorithm.Options
	hasCost bool
	// isPolicy is true for the default of a policy, whose replies have seven integers.
	isPolicy bool
	// id and ttl are those of a reservation or of a lease.
	id  string
	ttl int64
	// permits is the limit of a lease; 0 for other calls.
	permits int64
}

// reader reads words. It keeps its first error.
type reader struct {
	words []string
	err   error
}

func (r *reader) next() string {
	if len(r.words) == 0 {
		r.refuse()
		return ""
	}
	word := r.words[0]
	r.words = r.words[1:]
	return word
}

func (r *reader) refuse() {
	if r.err == nil {
		r.err = throttle.ServerError("ERR invalid rule: expected one that a limiter sends")
	}
}

// units reads a number of at least least.
func (r *reader) units(least int64) int64 {
	units, err := strconv.ParseInt(r.next(), 10, 64)
	if err != nil || units < least || units > 1e12 {
		r.refuse()
		return least
	}
	return units
}

// nanos reads a duration.
func (r *reader) nanos() int64 {
	word := r.next()
	if !strings.HasSuffix(word, "s") {
		word += "s"
	}
	d, err := time.ParseDuration(word)
	if err != nil || d < time.Millisecond {
		r.refuse()
		return int64(time.Millisecond)
	}
	return int64(d)
}

// parsed reads a rule and the options of a call.
func parsed(words []string) (*call, error) {
	r := &reader{words: words}
	c := &call{options: algorithm.Options{Cost: 1}}
	if len(words) > 0 && words[0] == "RESERVE" {
		r.next()
		c.id, c.ttl = r.next(), r.nanos()
	}
	plain, other, hasDefault := r.words, []string(nil), false
	if at := slices.Index(plain, "DEFAULT"); at >= 0 {
		plain, other, hasDefault = plain[:at], plain[at+1:], true
	}
	r.words = nil
	rest := c.takeOptions(r, plain)
	if len(rest) > 0 && rest[0] == "USE" {
		if !hasDefault {
			return nil, throttle.ServerError("NOPOLICY no such policy")
		}
		c.isPolicy, rest = true, other
	}
	r.words = rest
	c.word = r.next()
	c.takeRule(r)
	if c.ttl > 0 && c.permits == 0 && r.err == nil {
		_, r.err = c.window()
	}
	return c, r.err
}

// window returns the window of a rule that can reserve.
func (c *call) window() (*window, error) {
	w, ok := c.decider.(*window)
	switch {
	case ok:
		return w, nil
	case c.isPolicy:
		return nil, throttle.ServerError(
			"ERR invalid policy: expected a rule of FIXED or QUOTA, which allow reservations")
	}
	return nil, throttle.ServerError(
		"ERR invalid algorithm: expected FIXED or QUOTA, which allow reservations, or USE")
}

// takeOptions reads the options among words, and returns the others.
func (c *call) takeOptions(from *reader, words []string) (rest []string) {
	r := &reader{words: words, err: from.err}
	for len(r.words) > 0 {
		switch word := r.next(); word {
		case "PARTIAL":
			c.options.Partial = true
		case "COST":
			c.options.Cost, c.hasCost = r.units(0), true
		case "LEAVE":
			c.options.Leave = r.next()
		default:
			rest = append(rest, word)
		}
	}
	from.err = r.err
	return rest
}

func (c *call) takeRule(r *reader) {
	switch c.word {
	case "GCRA", "TOKENBUCKET", "LEAKYBUCKET":
		c.decider = bucketOf(c.word, r.units(1), r.units(1), r.nanos())
	case "FIXED":
		limit, length := r.units(1), r.nanos()
		c.decider = &window{limit, fixed(length, slices.Contains(r.words, "ALIGNED"))}
	case "SLIDING":
		limit, length := r.units(1), r.nanos()
		// The largest number of ticks at which units times ticks fit in 64 bits.
		tick := int64(1000)
		for limit > math.MaxInt64/8/(length/tick) {
			tick *= 2
		}
		c.decider = &algorithm.SlidingWindow{Limit: limit, Window: length, Tick: tick}
	case "SLIDINGLOG":
		c.decider = logOf(r)
	case "QUOTA":
		limit, unit := r.units(1), r.next()
		if len(r.words) > 0 && r.err == nil {
			r.err = throttle.ServerError("ERR the fake server does not know ZONE and START")
		}
		c.decider = &window{limit, calendar(unit)}
	case "BACKOFF":
		c.decider = &backoff{r.units(1), r.nanos(), r.nanos(), r.nanos()}
	case "LEASE":
		c.id, c.permits, c.ttl = r.next(), r.units(1), r.nanos()
	default:
		r.err = throttle.ServerError("ERR the fake server does not know " + c.word)
	}
}

// bucketOf returns a bucket. A unit of GCRA is a whole number of nanoseconds. The others count
// parts of a unit, unless those do not fit in 64 bits.
func bucketOf(word string, limit, rate, period int64) decider {
	b := &algorithm.Bucket{
		IsQueue: word == "LEAKYBUCKET", Limit: limit, Unit: (period + rate - 1) / rate, Drain: 1,
	}
	divisor, rest := period, rate
	for rest != 0 {
		divisor, rest = rest, divisor%rest
	}
	if unit := period / divisor; word != "GCRA" && unit <= math.MaxInt64/4/limit {
		b.Unit, b.Drain = unit, rate/divisor
	}
	return b
}

func logOf(r *reader) decider {
	l := &algorithm.SlidingLog{Limit: r.units(1), Window: r.nanos(), Slot: 1}
	slots := int64(slotsDefault)
	if len(r.words) > 0 && r.next() == "SLOTS" {
		slots = r.units(1)
	}
	if l.Limit > slots {
		l.Slot = (l.Window/1000 + slots - 1) / slots * 1000
	}
	return l
}
