package throttletest

import (
	"math"
	"slices"
	"time"

	"redis-throttle.invalid/go/internal/algorithm"
)

// window is a counter per window, fixed or of the calendar. Its units are used or reserved.
type window struct {
	limit int64
	// bounds returns the window that is open at an instant, of one that began at start.
	bounds func(start, now int64) (begin, end int64)
}

// reservation holds units, or remembers the id of a settled one.
type reservation struct {
	id        string
	units     int64
	isSettled bool
	ttl, ends int64
}

// usage is what is used of a window, and its reservations.
type usage struct {
	limit, begin, end, used, now int64
	reserved                     []reservation
}

func fixed(length int64, isAligned bool) func(start, now int64) (int64, int64) {
	return func(start, now int64) (int64, int64) {
		begin := now
		if isAligned {
			begin = now - now%length
		}
		if now < start+length && (!isAligned || start >= begin) {
			begin = start
		}
		return begin, begin + length
	}
}

// calendar returns the bounds of a period of the calendar in UTC.
func calendar(unit string) func(start, now int64) (int64, int64) {
	return func(_, now int64) (int64, int64) {
		at := time.Unix(0, now).UTC()
		year, month, day := at.Date()
		months, days := 0, 0
		switch unit {
		case "day":
			days = 1
		case "week":
			day, days = day-(int(at.Weekday())+6)%7, 7
		case "quarter":
			day, month, months = 1, month-(month-1)%3, 3
		case "year":
			day, month, months = 1, 1, 12
		default:
			day, months = 1, 1
		}
		begin := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		return begin.UnixNano(), begin.AddDate(0, months, days).UnixNano()
	}
}

// at returns the usage at an instant.
func (w *window) at(state any, now int64) usage {
	last, _ := state.(usage)
	start := last.begin
	if last.used == 0 {
		start = math.MinInt64 / 2
	}
	u := usage{limit: w.limit, now: now}
	if u.begin, u.end = w.bounds(start, now); u.begin == start {
		u.used = last.used
	}
	for _, one := range last.reserved {
		if now < one.ends {
			u.reserved = append(u.reserved, one)
		}
	}
	return u
}

// Decide implements [algorithm.Algorithm].
func (w *window) Decide(state any, now, cost int64) algorithm.Verdict {
	u := w.at(state, now)
	if cost > 0 && u.taken()+cost > w.limit {
		v := u.shown()
		v.RetryAfter = u.roomIn(cost)
		return v
	}
	u.used += cost
	v := u.shown()
	v.Allowed = true
	if cost > 0 {
		v.State = u
	}
	return v
}

// Add implements [algorithm.Algorithm].
func (w *window) Add(state any, now, units int64) any {
	u := w.at(state, now)
	u.used = max(0, u.used+units)
	return u.stored()
}

// Over implements [decider].
func (w *window) Over(state any, now int64) time.Duration {
	return w.at(state, now).roomIn(0)
}

// stored returns the state to store; nil if nothing is used or remembered.
func (u usage) stored() any {
	if u.used == 0 && len(u.reserved) == 0 {
		return nil
	}
	return u
}

// taken returns the units used and held.
func (u usage) taken() int64 {
	taken := u.used
	for _, one := range u.reserved {
		taken += one.units
	}
	return taken
}

// shown returns a denial without a retry time.
func (u usage) shown() algorithm.Verdict {
	reset := u.now
	if u.used > 0 {
		reset = u.end
	}
	for _, one := range u.reserved {
		if one.units > 0 {
			reset = max(reset, one.ends)
		}
	}
	return algorithm.Verdict{
		Limit: u.limit, Remaining: max(0, u.limit-u.taken()),
		ResetAfter: algorithm.Millis(reset - u.now),
	}
}

// roomIn returns the time until a cost fits: the window ends, or reservations expire.
func (u usage) roomIn(cost int64) time.Duration {
	if cost > u.limit {
		return algorithm.Never
	}
	freed := append(slices.Clone(u.reserved), reservation{units: u.used, ends: u.end})
	slices.SortStableFunc(freed, func(a, b reservation) int { return int(a.ends - b.ends) })
	taken := u.taken()
	for _, one := range freed {
		if taken+cost <= u.limit {
			break
		}
		if taken -= one.units; taken+cost <= u.limit {
			return algorithm.Millis(one.ends - u.now)
		}
	}
	return 0
}

// backoff has some attempts without delay, then delays that double.
type backoff struct{ limit, base, longest, forget int64 }

type attempts struct{ last, count int64 }

func (b *backoff) at(state any, now int64) attempts {
	last, ok := state.(attempts)
	if !ok || now >= last.last+b.forget {
		return attempts{last: now}
	}
	return last
}

func (b *backoff) delay(count int64) int64 {
	if count < b.limit {
		return 0
	}
	delay := b.base
	for ; count > b.limit && delay < b.longest; count-- {
		delay *= 2
	}
	return min(delay, b.longest)
}

// Decide implements [algorithm.Algorithm].
func (b *backoff) Decide(state any, now, cost int64) algorithm.Verdict {
	a := b.at(state, now)
	v := algorithm.Verdict{Limit: b.limit, RetryAfter: b.Over(state, now)}
	if v.Allowed = v.RetryAfter == 0; v.Allowed && cost > 0 {
		a = attempts{now, a.count + 1}
		v.State = a
	}
	v.Remaining = max(0, b.limit-a.count)
	if a.count > 0 {
		v.ResetAfter = algorithm.Millis(a.last + b.forget - now)
	}
	return v
}

// Add implements [algorithm.Algorithm].
func (b *backoff) Add(state any, now, units int64) any {
	a := b.at(state, now)
	if units > 0 {
		a.last = now
	}
	if a.count += units; a.count <= 0 {
		return nil
	}
	return a
}

// Over returns the time until the next attempt.
func (b *backoff) Over(state any, now int64) time.Duration {
	a := b.at(state, now)
	return algorithm.Millis(max(0, a.last+b.delay(a.count)-now))
}
