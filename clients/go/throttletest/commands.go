package throttletest

import (
	"fmt"
	"math"
	"strings"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/algorithm"
)

const wrongType = throttle.ServerError(
	"WRONGTYPE the key does not hold a state of this algorithm")

// entry is what a key holds: a state of an algorithm, the holders of a lease, or a ban.
type entry struct {
	word    string
	decider decider
	state   any
	// holders has the end of each lease.
	holders map[string]int64
	// bannedUntil is the end of a ban, otherwise 0.
	bannedUntil int64
}

// row is the decision of one rule.
type row struct {
	*call
	key     string
	verdict algorithm.Verdict
	// granted is the number of units that an allowed call takes.
	granted int64
	// commit takes them.
	commit func()
}

// reply runs a command.
func (s *Server) reply(words []string) (any, error) {
	if len(words) < 2 {
		return nil, throttle.ServerError("ERR wrong number of arguments")
	}
	command, key, rest := words[0], words[1], words[2:]
	verb, isOurs := strings.CutPrefix(command, "RL.")
	switch {
	case command == "DEL":
		isThere := s.entry(key) != nil
		delete(s.keys, key)
		return oneIf(isThere), nil
	case !isOurs:
		return nil, throttle.ServerError("ERR unknown command '" + command + "'")
	}
	switch verb {
	case "ALL", "PEEKALL":
		return s.all(words[1:], verb == "ALL")
	case "PEEK":
		return s.one(key, rest, false)
	case "REFUND", "CHARGE":
		return s.settle(key, rest, verb == "CHARGE")
	case "COMMIT", "CANCEL":
		return s.end(key, rest, verb == "COMMIT")
	case "BLOCK", "RENEW", "RELEASE":
		r := &reader{words: rest}
		return s.simple(verb, key, r)
	}
	return s.one(key, append([]string{verb}, rest...), true)
}

func oneIf(isTrue bool) int64 {
	if isTrue {
		return 1
	}
	return 0
}

// simple runs a command without a rule.
func (s *Server) simple(verb, key string, r *reader) (any, error) {
	if verb == "BLOCK" {
		d := r.nanos()
		if r.err == nil {
			s.keys[key] = &entry{bannedUntil: s.nowNanos() + d}
		}
		return "OK", r.err
	}
	id, found := r.next(), s.entry(key)
	if found != nil && found.decider != nil {
		return nil, wrongType
	}
	if found == nil || found.holders[id] == 0 {
		return int64(0), r.err
	}
	if verb == "RELEASE" {
		delete(found.holders, id)
	} else if ttl := r.nanos(); r.err == nil {
		found.holders[id] = s.nowNanos() + ttl
	}
	return int64(1), r.err
}

// entry returns what a key holds; nil if there is nothing or it has expired.
func (s *Server) entry(key string) *entry {
	found, now := s.keys[key], s.nowNanos()
	if found == nil {
		return nil
	}
	isThere := found.bannedUntil > now
	for id, ends := range found.holders {
		if ends <= now {
			delete(found.holders, id)
		}
	}
	isThere = isThere || len(found.holders) > 0
	if found.decider != nil {
		isThere = found.decider.Add(found.state, now, 0) != nil
	}
	if !isThere {
		delete(s.keys, key)
		return nil
	}
	return found
}

// state returns the state of a key under the rule of a call, and the time for which it is banned.
func (s *Server) state(key string, c *call) (state any, banned time.Duration, err error) {
	found := s.entry(key)
	switch {
	case found == nil:
	case found.bannedUntil > 0:
		banned = algorithm.Millis(found.bannedUntil - s.nowNanos())
	case found.word == c.word:
		state = found.state
	// A policy may have had another rule before.
	case !c.isPolicy || found.holders != nil:
		err = wrongType
	}
	return state, banned, err
}

// store stores a state, or deletes the key if it is nil.
func (s *Server) store(key string, c *call, state any) {
	if state == nil {
		delete(s.keys, key)
	} else {
		s.keys[key] = &entry{word: c.word, decider: c.decider, state: state}
	}
}

// limit returns the limit of the call's rule.
func (c *call) limit() int64 {
	if c.permits > 0 {
		return c.permits
	}
	return c.Decide(nil, 0, 0).Limit
}

// banned returns the verdict on a call of a banned key.
func (c *call) banned(left time.Duration, units int64) algorithm.Verdict {
	v := algorithm.Verdict{Limit: c.limit(), RetryAfter: left, ResetAfter: left}
	if units > v.Limit {
		v.RetryAfter = algorithm.Never
	}
	return v
}

// decide decides the call of a rule without taking anything.
func (s *Server) decide(key string, words []string) (*row, error) {
	c, err := parsed(words)
	if err != nil {
		return nil, err
	}
	state, banned, err := s.state(key, c)
	if err != nil {
		return nil, err
	}
	r := &row{call: c, key: key, granted: c.options.Cost}
	switch {
	case banned > 0:
		units := c.options.Cost
		if c.options.Partial {
			units = 1
		}
		r.verdict = c.banned(banned, units+algorithm.LeftUnits(c.options.Leave, c.limit()))
	case c.permits > 0:
		s.lease(r)
	case c.ttl > 0:
		err = s.reserve(r, state)
	default:
		r.verdict, r.granted = algorithm.Granted(c, state, s.nowNanos(), c.options)
		r.commit = func() {
			if r.verdict.State != nil {
				s.store(key, c, r.verdict.State)
			}
		}
	}
	return r, err
}

// five returns the reply of a row: five integers, or seven under a policy.
func (r *row) five() []any {
	taken := oneIf(r.verdict.Allowed)
	if r.options.Partial {
		taken *= r.granted
	}
	reply := integers(taken, r.verdict)
	if r.isPolicy {
		reply = append(reply, taken, reply[3])
	}
	return reply
}

// integers returns a reply of five integers.
func integers(taken int64, v algorithm.Verdict) []any {
	retry := v.RetryAfter.Milliseconds()
	if v.RetryAfter < 0 {
		retry = -1
	}
	return []any{taken, v.Limit, v.Remaining, retry, v.ResetAfter.Milliseconds()}
}

// one runs a command of one rule.
func (s *Server) one(key string, words []string, takes bool) (any, error) {
	r, err := s.decide(key, words)
	if err != nil {
		return nil, err
	}
	if takes && r.verdict.Allowed {
		r.commit()
	}
	return r.five(), nil
}

// settle charges or refunds units.
func (s *Server) settle(key string, words []string, isCharge bool) (any, error) {
	c, err := parsed(words)
	if err != nil {
		return nil, err
	}
	if c.permits > 0 {
		return nil, wrongType
	}
	state, banned, err := s.state(key, c)
	if err != nil {
		return nil, err
	}
	if banned > 0 {
		return integers(0, c.banned(banned, 0)), nil
	}
	units, now := c.options.Cost, s.nowNanos()
	if !isCharge {
		units = -units
	}
	isAllowed := c.Over(state, now) == 0
	state = c.Add(state, now, units)
	s.store(key, c, state)
	v := c.Decide(state, now, 0)
	v.RetryAfter = c.Over(state, now)
	// After each attempt of a backoff there is a delay.
	if c.word != "BACKOFF" || !isCharge {
		isAllowed = v.RetryAfter == 0
	}
	return integers(oneIf(isAllowed), v), nil
}

// all runs a command of several rules.
func (s *Server) all(words []string, takes bool) (any, error) {
	var rows []*row
	denied := false
	for at := 0; at+1 < len(words); at += 2 {
		r, err := s.decide(words[at], strings.Fields(words[at+1]))
		if err != nil {
			kind, text, _ := strings.Cut(err.Error(), " ")
			return nil, throttle.ServerError(fmt.Sprintf("%s rule %d: %s", kind, at/2+1, text))
		}
		rows = append(rows, r)
		denied = denied || !r.verdict.Allowed
	}
	if len(rows) == 0 {
		return nil, throttle.ServerError("ERR wrong number of arguments")
	}
	for _, r := range rows {
		if denied && r.verdict.Allowed {
			r.verdict.Remaining, r.verdict.ResetAfter = s.standing(r)
			r.verdict.RetryAfter = 0
		} else if !denied && takes {
			r.commit()
		}
	}
	at := deciding(rows, denied)
	whole := rows[at].verdict
	if !denied {
		// The longest wait of the leaky buckets.
		for _, r := range rows {
			whole.RetryAfter = max(whole.RetryAfter, r.verdict.RetryAfter)
		}
	}
	reply := append(integers(oneIf(!denied), whole), int64(at+1))
	for _, r := range rows {
		reply = append(reply, r.five())
	}
	return reply, nil
}

// standing returns what is left of a rule that allows a call which another denies.
func (s *Server) standing(r *row) (int64, time.Duration) {
	if r.permits > 0 {
		holders, last := s.holders(r.key), s.nowNanos()
		for _, ends := range holders {
			last = max(last, ends)
		}
		left := max(0, r.permits-int64(len(holders)))
		return left, algorithm.Millis(last - s.nowNanos())
	}
	state, _, _ := s.state(r.key, r.call)
	v := r.Decide(state, s.nowNanos(), 0)
	return v.Remaining, v.ResetAfter
}

// deciding returns the index of the row that decides: of a denial the one with the longest wait,
// otherwise the one that allows the fewest further calls.
func deciding(rows []*row, denied bool) int {
	best, least, leastLeft := 0, int64(math.MaxInt64), int64(math.MaxInt64)
	for at, r := range rows {
		v, left := r.verdict, r.verdict.Remaining
		score := int64(math.MaxInt64)
		switch {
		case denied && v.Allowed:
			continue
		case denied && v.RetryAfter < 0:
			score, left = math.MinInt64, 0
		case denied:
			score, left = -int64(v.RetryAfter), 0
		case r.options.Cost > 0:
			usable := left - algorithm.LeftUnits(r.options.Leave, v.Limit)
			score = max(0, usable) / r.options.Cost
		}
		if score < least || score == least && left < leastLeft {
			best, least, leastLeft = at, score, left
		}
	}
	return best
}
