package throttletest

import (
	"slices"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/algorithm"
)

const (
	// idsMax is the number of ids that a key remembers at a time.
	idsMax = 1024
	// settledMin is the shortest time for which an id is remembered after its commit, unless the
	// ttl is shorter.
	settledMin = int64(time.Minute)
)

// holders returns the end of each lease of a key.
func (s *Server) holders(key string) map[string]int64 {
	if found := s.entry(key); found != nil {
		return found.holders
	}
	return nil
}

// lease decides a permit.
func (s *Server) lease(r *row) {
	holders, now := s.holders(r.key), s.nowNanos()
	count, left := int64(len(holders)), algorithm.LeftUnits(r.options.Leave, r.permits)
	isHolder := holders[r.id] != 0
	var ends []int64
	for _, at := range holders {
		ends = append(ends, at)
	}
	slices.Sort(ends)
	v := algorithm.Verdict{Limit: r.permits, Allowed: isHolder || count+left < r.permits}
	reset := int64(0)
	switch {
	case v.Allowed:
		reset = r.ttl
		if !isHolder {
			count++
		}
	case left >= r.permits:
		v.RetryAfter = algorithm.Never
	default:
		v.RetryAfter = algorithm.Millis(ends[count+left-r.permits] - now)
	}
	if len(ends) > 0 {
		reset = max(reset, ends[len(ends)-1]-now)
	}
	v.Remaining, v.ResetAfter = max(0, r.permits-count), algorithm.Millis(reset)
	r.verdict = v
	r.commit = func() {
		if holders == nil {
			holders = map[string]int64{}
			s.keys[r.key] = &entry{word: r.word, holders: holders}
		}
		holders[r.id] = now + r.ttl
	}
}

// take returns the reservation of an id, and the usage without it.
func (u usage) take(id string) (own *reservation, others usage) {
	others = u
	others.reserved = nil
	for _, one := range u.reserved {
		if one.id == id {
			own = &one
		} else {
			others.reserved = append(others.reserved, one)
		}
	}
	return own, others
}

// reserve decides a reservation, which replaces an open one of the same id.
func (s *Server) reserve(r *row, state any) error {
	w, err := r.window()
	if err != nil {
		return err
	}
	u := w.at(state, s.nowNanos())
	own, others := u.take(r.id)
	switch {
	case own != nil && own.isSettled:
		return throttle.ServerError("ERR invalid id: already committed, use a new id for each job")
	case own == nil && len(others.reserved) >= idsMax:
		return throttle.ServerError(
			"ERR too many reservations: a key remembers at most 1024 ids at a time")
	}
	units := r.options.Cost + algorithm.LeftUnits(r.options.Leave, u.limit)
	if units > 0 && others.taken()+units > u.limit {
		r.verdict = u.shown()
		r.verdict.RetryAfter = others.roomIn(units)
		return nil
	}
	others.reserved = append(others.reserved, reservation{
		id: r.id, units: r.options.Cost, ttl: r.ttl, ends: u.now + r.ttl,
	})
	r.verdict = others.shown()
	r.verdict.Allowed = true
	r.commit = func() { s.store(r.key, r.call, others) }
	return nil
}

// end commits or cancels a reservation.
func (s *Server) end(key string, words []string, isCommit bool) (any, error) {
	if len(words) == 0 {
		return nil, throttle.ServerError("ERR wrong number of arguments")
	}
	c, err := parsed(words[1:])
	if err != nil {
		return nil, err
	}
	w, err := c.window()
	if err != nil {
		return nil, err
	}
	state, banned, err := s.state(key, c)
	if err != nil {
		return nil, err
	}
	if banned > 0 {
		return integers(0, c.banned(banned, 0)), nil
	}
	u := w.at(state, s.nowNanos())
	own, others := u.take(words[0])
	isKnown := own != nil
	switch isOpen := isKnown && !own.isSettled; {
	case isOpen && isCommit:
		units := own.units
		if c.hasCost {
			units = c.options.Cost
		}
		own.ends = max(own.ends, u.now+min(own.ttl, settledMin))
		own.units, own.isSettled = 0, true
		u = others
		u.used += units
		u.reserved = append(u.reserved, *own)
	case isOpen:
		u = others
	case !isCommit:
		isKnown = false
	}
	s.store(key, c, u.stored())
	v := u.shown()
	v.RetryAfter = u.roomIn(0)
	return integers(oneIf(isKnown), v), nil
}
