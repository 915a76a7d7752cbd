package throttle

import (
	"math"
	"slices"
	"time"
)

// entriesMax is the largest limit of a local sliding log that has an entry for each call.
const entriesMax = 1000

// never is the retry time of a call that is never allowed.
const never = time.Duration(-1)

// verdict is an algorithm's decision.
type verdict struct {
	allowed    bool
	limit      int64
	remaining  int64
	retryAfter time.Duration
	resetAfter time.Duration
	// state is what to store; nil if nothing changes.
	state any
}

// algorithm decides calls in this process. Times are nanoseconds since 1970. All numbers are
// rounded so that the limit is never exceeded.
type algorithm interface {
	// decide returns the verdict on a call. The state is nil for a key without calls.
	decide(state any, now int64, cost int64) verdict
	// refund returns the state with units given back; nil if none are taken then.
	refund(state any, now int64, cost int64) any
}

// localAlgorithm returns the algorithm for a share of the rule, or nil if its kind has none. A
// share below one unit is one unit in a longer time, at most maxRefill: longer ones would overflow.
func (r *Rule) localAlgorithm(share float64) algorithm {
	wanted := float64(r.limit) * share
	limit := max(1, int64(wanted))
	switch r.kind {
	case KindGCRA, KindTokenBucket, KindLeakyBucket:
		unit := min(math.Ceil(r.perUnit()/share), float64(maxRefill))
		return &bucket{isQueue: r.kind == KindLeakyBucket, limit: limit, unit: int64(unit)}
	}
	window := int64(min(float64(r.window)/min(1, wanted), float64(maxRefill)))
	switch r.kind {
	case KindFixed:
		return &fixedWindow{limit, window, slices.Contains(r.words, "ALIGNED")}
	case KindSliding:
		// The window has at most 2^20 ticks, so that units times ticks fit in 64 bits.
		return &slidingWindow{limit, window, max(1, window>>20)}
	case KindSlidingLog:
		slot := int64(1)
		if limit > entriesMax {
			slot = window / entriesMax
		}
		return &slidingLog{limit, window, slot}
	}
	return nil
}

// millis rounds nanoseconds up to milliseconds.
func millis(ns int64) time.Duration {
	return time.Duration((ns + 999_999) / 1_000_000 * 1_000_000)
}

// bucket is GCRA, a token bucket or a leaky bucket. Its level is the time until it is empty.
type bucket struct {
	isQueue bool
	limit   int64
	unit    int64
}

type level struct{ ns, at int64 }

func (b *bucket) decide(state any, now, cost int64) verdict {
	var used int64
	if last, ok := state.(level); ok {
		used = max(0, last.ns-max(0, now-last.at))
	}
	full := b.limit * b.unit
	v := verdict{limit: b.limit, remaining: max(0, full-used) / b.unit, resetAfter: millis(used)}
	if cost > b.limit {
		v.retryAfter = never
		return v
	}
	after := used + cost*b.unit
	if cost > 0 && after > full {
		v.retryAfter = millis(after - full)
		return v
	}
	v.allowed, v.remaining, v.resetAfter = true, max(0, full-after)/b.unit, millis(after)
	if b.isQueue {
		v.retryAfter = millis(used)
	}
	if cost > 0 {
		v.state = level{after, now}
	}
	return v
}

type fixedWindow struct {
	limit, window int64
	isAligned     bool
}

type opened struct{ start, used int64 }

func (w *fixedWindow) decide(state any, now, cost int64) verdict {
	begin := now
	if w.isAligned {
		begin = now - now%w.window
	}
	open, ok := state.(opened)
	if !ok || now >= open.start+w.window || w.isAligned && open.start < begin {
		open = opened{start: begin}
	}
	v := verdict{limit: w.limit, allowed: cost == 0 || open.used+cost <= w.limit}
	left := open.start + w.window - now
	switch {
	case v.allowed:
		open.used += cost
	case cost > w.limit:
		v.retryAfter = never
	default:
		v.retryAfter = millis(left)
	}
	v.remaining = max(0, w.limit-open.used)
	if open.used > 0 {
		v.resetAfter = millis(left)
	}
	if v.allowed && cost > 0 {
		v.state = open
	}
	return v
}

// slidingWindow counts two windows. The previous one counts less with each tick.
type slidingWindow struct{ limit, window, tick int64 }

type counters struct{ start, previous, current int64 }

// at returns the counters at an instant.
func (w *slidingWindow) at(state any, now int64) counters {
	start := now - now%w.window
	last, ok := state.(counters)
	switch {
	case ok && last.start == start:
		return last
	case ok && last.start == start-w.window:
		return counters{start: start, previous: last.current}
	}
	return counters{start: start}
}

// free returns the units that are free, in ticks of a unit.
func (w *slidingWindow) free(c counters, now int64) int64 {
	c = w.at(c, now)
	ticks := w.window / w.tick
	left := ticks - (now-c.start)/w.tick
	return (w.limit-c.current)*ticks - c.previous*left
}

// roomAfter returns the time until a cost fits.
func (w *slidingWindow) roomAfter(c counters, now, cost int64) time.Duration {
	ticks := w.window / w.tick
	fits := func(at int64) bool { return w.free(c, at) >= cost*ticks }
	low, high := int64(0), 2*w.window/1_000_000+1
	if fits(now) {
		return 0
	}
	for high-low > 1 {
		if middle := (low + high) / 2; fits(now + middle*1_000_000) {
			high = middle
		} else {
			low = middle
		}
	}
	return time.Duration(high) * time.Millisecond
}

func (w *slidingWindow) decide(state any, now, cost int64) verdict {
	c := w.at(state, now)
	v := verdict{limit: w.limit}
	switch {
	case cost > w.limit:
		v.retryAfter = never
	case cost > 0:
		v.retryAfter = w.roomAfter(c, now, cost)
	}
	v.allowed = v.retryAfter == 0
	if v.allowed && cost > 0 {
		c.current += cost
		v.state = c
	}
	v.remaining = max(0, w.free(c, now)/(w.window/w.tick))
	switch {
	case c.current > 0:
		v.resetAfter = millis(c.start + 2*w.window - now)
	case c.previous > 0:
		v.resetAfter = millis(c.start + w.window - now)
	}
	return v
}

// slidingLog has an entry for each part of the window in which units were taken.
type slidingLog struct{ limit, window, slot int64 }

type entry struct{ at, units int64 }

func (l *slidingLog) decide(state any, now, cost int64) verdict {
	entries, _ := state.([]entry)
	expired := 0
	for expired < len(entries) && now >= entries[expired].at+l.window {
		expired++
	}
	entries = entries[expired:]
	var used int64
	for _, e := range entries {
		used += e.units
	}
	v := verdict{limit: l.limit, allowed: cost == 0 || used+cost <= l.limit}
	switch {
	case !v.allowed && cost > l.limit:
		v.retryAfter = never
	case !v.allowed:
		v.retryAfter = millis(l.freed(entries, used+cost-l.limit) + l.window - now)
	case cost > 0:
		entries = l.added(entries, now, cost)
		used += cost
		v.state = entries
	}
	v.remaining = max(0, l.limit-used)
	if len(entries) > 0 {
		v.resetAfter = millis(entries[len(entries)-1].at + l.window - now)
	}
	return v
}

// freed returns the instant of the entry that must expire for the units to be free.
func (l *slidingLog) freed(entries []entry, units int64) int64 {
	var at int64
	for _, e := range entries {
		if units <= 0 {
			break
		}
		units -= e.units
		at = e.at
	}
	return at
}

// added returns the entries with units at an instant, rounded up to a slot. It changes no entry in
// place, because a call may be tried and not taken.
func (l *slidingLog) added(entries []entry, now, units int64) []entry {
	at := (now + l.slot - 1) / l.slot * l.slot
	if last := len(entries) - 1; last >= 0 && entries[last].at >= at {
		more := entry{entries[last].at, entries[last].units + units}
		return append(slices.Clone(entries[:last]), more)
	}
	return append(entries, entry{at, units})
}
