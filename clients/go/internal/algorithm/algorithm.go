// Package algorithm decides calls in this process, for the client's local limits and for its fake
// server.
package algorithm

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Never is the retry time of a call that is never allowed.
const Never = time.Duration(-1)

// Verdict is an algorithm's decision.
type Verdict struct {
	Allowed    bool
	Limit      int64
	Remaining  int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	// State is what to store; nil if nothing changes.
	State any
}

// Algorithm decides calls. Times are nanoseconds since 1970. All numbers are rounded so that the
// limit is never exceeded.
type Algorithm interface {
	// Decide returns the verdict on a call. The state is nil for a key without calls.
	Decide(state any, now int64, cost int64) Verdict
	// Add returns the state with units taken, also beyond the limit, or given back if they are
	// below 0; nil if none are taken then.
	Add(state any, now int64, units int64) any
}

// Options are those of a call.
type Options struct {
	Cost    int64
	Partial bool
	// Leave is the number of units or the percentage that is left to others; empty if none.
	Leave string
}

// Granted decides a call with its options, and returns the units that it takes if it is allowed.
func Granted(a Algorithm, state any, now int64, o Options) (Verdict, int64) {
	decide := func(cost int64) Verdict { return a.Decide(state, now, cost) }
	if !o.Partial && o.Leave == "" {
		return decide(o.Cost), o.Cost
	}
	free := decide(0)
	left := LeftUnits(o.Leave, free.Limit)
	cost := o.Cost
	if o.Partial {
		cost = min(cost, max(1, free.Remaining-left))
	}
	whole := decide(cost + left)
	if whole.Allowed {
		return decide(cost), cost
	}
	return whole, cost
}

// LeftUnits returns the units that a call leaves to others.
func LeftUnits(leave string, limit int64) int64 {
	share, isShare := strings.CutSuffix(leave, "%")
	units, _ := strconv.ParseInt(share, 10, 64)
	if isShare {
		return limit/100*units + limit%100*units/100
	}
	return units
}

// Millis rounds nanoseconds up to milliseconds.
func Millis(ns int64) time.Duration {
	return time.Duration((ns + 999_999) / 1_000_000 * 1_000_000)
}

// Bucket is GCRA, a token bucket or a leaky bucket. Its level is the time until it is empty: a unit
// leaves in Unit nanoseconds.
type Bucket struct {
	IsQueue     bool
	Limit, Unit int64
}

// levelMax is the highest level. Units above it are not counted.
const levelMax = math.MaxInt64 / 2

type level struct{ length, at int64 }

// now returns the level at an instant.
func (b *Bucket) now(state any, now int64) int64 {
	last, _ := state.(level)
	return max(0, last.length-max(0, now-last.at))
}

// FullAfter returns the state of a bucket that is full again some time after an instant.
func (b *Bucket) FullAfter(at int64, reset time.Duration) any {
	return level{min(int64(reset), levelMax), at}
}

// Decide implements [Algorithm].
func (b *Bucket) Decide(state any, now, cost int64) Verdict {
	used := b.now(state, now)
	full := b.Limit * b.Unit
	v := Verdict{Limit: b.Limit, Remaining: max(0, full-used) / b.Unit, ResetAfter: Millis(used)}
	if cost > b.Limit {
		v.RetryAfter = Never
		return v
	}
	after := used + cost*b.Unit
	if cost > 0 && after > full {
		v.RetryAfter = Millis(after - full)
		return v
	}
	v.Allowed, v.Remaining, v.ResetAfter = true, max(0, full-after)/b.Unit, Millis(after)
	if b.IsQueue {
		v.RetryAfter = Millis(used)
	}
	if cost > 0 {
		v.State = level{after, now}
	}
	return v
}

// Add implements [Algorithm].
func (b *Bucket) Add(state any, now, units int64) any {
	used := b.now(state, now)
	units = max(units, -used/b.Unit-1)
	if units > (levelMax-used)/b.Unit {
		return level{levelMax, now}
	}
	if left := used + units*b.Unit; left > 0 {
		return level{left, now}
	}
	return nil
}

// FixedWindow is a counter per window.
type FixedWindow struct {
	Limit, Window int64
	IsAligned     bool
}

type opened struct{ start, used int64 }

// at returns the window that is open at an instant, or that a call would open.
func (w *FixedWindow) at(state any, now int64) opened {
	begin := now
	if w.IsAligned {
		begin = now - now%w.Window
	}
	open, ok := state.(opened)
	if !ok || now >= open.start+w.Window || w.IsAligned && open.start < begin {
		return opened{start: begin}
	}
	return open
}

// Decide implements [Algorithm].
func (w *FixedWindow) Decide(state any, now, cost int64) Verdict {
	open := w.at(state, now)
	v := Verdict{Limit: w.Limit, Allowed: cost == 0 || open.used+cost <= w.Limit}
	left := open.start + w.Window - now
	switch {
	case v.Allowed:
		open.used += cost
	case cost > w.Limit:
		v.RetryAfter = Never
	default:
		v.RetryAfter = Millis(left)
	}
	v.Remaining = max(0, w.Limit-open.used)
	if open.used > 0 {
		v.ResetAfter = Millis(left)
	}
	if v.Allowed && cost > 0 {
		v.State = open
	}
	return v
}

// Add implements [Algorithm].
func (w *FixedWindow) Add(state any, now, units int64) any {
	open := w.at(state, now)
	if open.used += units; open.used <= 0 {
		return nil
	}
	return open
}

// SlidingWindow counts two windows. The previous one counts less with each tick.
type SlidingWindow struct{ Limit, Window, Tick int64 }

type counters struct{ start, previous, current int64 }

// at returns the counters at an instant.
func (w *SlidingWindow) at(state any, now int64) counters {
	start := now - now%w.Window
	last, ok := state.(counters)
	switch {
	case ok && last.start == start:
		return last
	case ok && last.start == start-w.Window:
		return counters{start: start, previous: last.current}
	}
	return counters{start: start}
}

// free returns the units that are free, in ticks of a unit.
func (w *SlidingWindow) free(c counters, now int64) int64 {
	c = w.at(c, now)
	ticks := w.Window / w.Tick
	left := ticks - (now-c.start)/w.Tick
	return (w.Limit-c.current)*ticks - c.previous*left
}

// roomAfter returns the time until a cost fits.
func (w *SlidingWindow) roomAfter(c counters, now, cost int64) time.Duration {
	ticks := w.Window / w.Tick
	fits := func(at int64) bool { return w.free(c, at) >= cost*ticks }
	low, high := int64(0), 2*w.Window/1_000_000+1
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

// Decide implements [Algorithm].
func (w *SlidingWindow) Decide(state any, now, cost int64) Verdict {
	c := w.at(state, now)
	v := Verdict{Limit: w.Limit}
	switch {
	case cost > w.Limit:
		v.RetryAfter = Never
	case cost > 0:
		v.RetryAfter = w.roomAfter(c, now, cost)
	}
	v.Allowed = v.RetryAfter == 0
	if v.Allowed && cost > 0 {
		c.current += cost
		v.State = c
	}
	v.Remaining = max(0, w.free(c, now)/(w.Window/w.Tick))
	switch {
	case c.current > 0:
		v.ResetAfter = Millis(c.start + 2*w.Window - now)
	case c.previous > 0:
		v.ResetAfter = Millis(c.start + w.Window - now)
	}
	return v
}

// Add implements [Algorithm].
func (w *SlidingWindow) Add(state any, now, units int64) any {
	c := w.at(state, now)
	fromCurrent := max(units, -c.current)
	// Units above this number are not counted: units times ticks must fit in 64 bits.
	c.current = min(c.current+fromCurrent, math.MaxInt64/4/(w.Window/w.Tick))
	c.previous = max(0, c.previous+units-fromCurrent)
	if c.current+c.previous == 0 {
		return nil
	}
	return c
}

// SlidingLog has an entry for each part of the window in which units were taken.
type SlidingLog struct{ Limit, Window, Slot int64 }

type entry struct{ at, units int64 }

// at returns the entries that count at an instant, and their sum.
func (l *SlidingLog) at(state any, now int64) (entries []entry, used int64) {
	entries, _ = state.([]entry)
	for len(entries) > 0 && now >= entries[0].at+l.Window {
		entries = entries[1:]
	}
	for _, e := range entries {
		used += e.units
	}
	return entries, used
}

// Decide implements [Algorithm].
func (l *SlidingLog) Decide(state any, now, cost int64) Verdict {
	entries, used := l.at(state, now)
	v := Verdict{Limit: l.Limit, Allowed: cost == 0 || used+cost <= l.Limit}
	switch {
	case !v.Allowed && cost > l.Limit:
		v.RetryAfter = Never
	case !v.Allowed:
		v.RetryAfter = Millis(l.freed(entries, used+cost-l.Limit) + l.Window - now)
	case cost > 0:
		entries = l.added(entries, now, cost)
		used += cost
		v.State = entries
	}
	v.Remaining = max(0, l.Limit-used)
	if len(entries) > 0 {
		v.ResetAfter = Millis(entries[len(entries)-1].at + l.Window - now)
	}
	return v
}

// freed returns the instant of the entry that must expire for the units to be free.
func (l *SlidingLog) freed(entries []entry, units int64) int64 {
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
func (l *SlidingLog) added(entries []entry, now, units int64) []entry {
	at := (now + l.Slot - 1) / l.Slot * l.Slot
	if last := len(entries) - 1; last >= 0 && entries[last].at >= at {
		more := entry{entries[last].at, entries[last].units + units}
		return append(slices.Clone(entries[:last]), more)
	}
	return append(entries, entry{at, units})
}

// Add implements [Algorithm].
func (l *SlidingLog) Add(state any, now, units int64) any {
	entries, _ := l.at(state, now)
	if units > 0 {
		return l.added(entries, now, units)
	}
	for at := len(entries) - 1; at >= 0; at-- {
		if left := entries[at].units + units; left > 0 {
			return append(slices.Clone(entries[:at]), entry{entries[at].at, left})
		}
		units += entries[at].units
	}
	return nil
}
