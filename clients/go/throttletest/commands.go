package throttletest

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/algorithm"
)

// errNotComputed is the error of a command that needs a scripted reply.
var errNotComputed = errors.New("not computed")

// call is a call of one key under one rule, whose first word is word.
type call struct {
	algorithm.Algorithm
	key, word string
	options   algorithm.Options
	// state is that of the key. The last call that changed it keeps it for the server.
	state   any
	verdict algorithm.Verdict
	// granted is the number of units that an allowed call takes.
	granted int64
}

// reply runs a command, or takes the next scripted reply.
func (s *Server) reply(words []string) (any, error) {
	if reply, err := s.compute(words); !errors.Is(err, errNotComputed) {
		return reply, err
	}
	if len(s.script) == 0 {
		return nil, throttle.ServerError("ERR the fake server does not compute " + words[0] +
			": queue its reply with Script, or use a server, such as redis-throttle-lab serve")
	}
	reply := s.script[0]
	s.script = s.script[1:]
	if failure, ok := reply.(error); ok {
		return nil, failure
	}
	return reply, nil
}

func (s *Server) compute(words []string) (any, error) {
	verb, isModules := strings.CutPrefix(words[0], "RL.")
	if len(words) < 2 || !isModules && verb != "DEL" {
		return nil, errNotComputed
	}
	key, rule := words[1], words[2:]
	switch verb {
	case "DEL":
		_, isThere := s.keys[key]
		delete(s.keys, key)
		return oneIf(isThere), nil
	case "ALL", "PEEKALL":
		return s.all(words[1:], verb == "ALL")
	case "CHARGE", "REFUND", "PEEK":
	default:
		rule = append([]string{verb}, rule...)
	}
	c, err := s.decide(key, rule)
	switch {
	case err != nil:
		return nil, err
	case verb == "CHARGE":
		return s.settle(c, c.options.Cost), nil
	case verb == "REFUND":
		return s.settle(c, -c.options.Cost), nil
	case verb != "PEEK":
		s.commit(c)
	}
	return c.five(), nil
}

func oneIf(isTrue bool) int64 {
	if isTrue {
		return 1
	}
	return 0
}

// decide decides the call of a rule without taking anything.
func (s *Server) decide(key string, words []string) (*call, error) {
	c, isAligned, rule := &call{key: key, options: algorithm.Options{Cost: 1}}, false, []string{}
	for at := 0; at < len(words); at++ {
		switch word := words[at]; {
		case word == "PARTIAL":
			c.options.Partial = true
		case word == "ALIGNED":
			isAligned = true
		case word == "COST" && at+1 < len(words):
			at++
			c.options.Cost = units(words[at])
		case word == "LEAVE" && at+1 < len(words):
			at++
			c.options.Leave = words[at]
		default:
			rule = append(rule, word)
		}
	}
	if c.Algorithm = algorithmOf(rule, isAligned); c.Algorithm == nil || c.options.Cost < 0 {
		return nil, errNotComputed
	}
	c.word = rule[0]
	if found := s.keys[key]; found != nil && found.word == c.word {
		c.state = found.state
	}
	c.verdict, c.granted = algorithm.Granted(c, c.state, s.nowNanos(), c.options)
	return c, nil
}

// units reads a number of units; -1 if it is none.
func units(word string) int64 {
	units, err := strconv.ParseInt(word, 10, 64)
	if err != nil || units > 1e12 {
		return -1
	}
	return units
}

// algorithmOf returns the algorithm of a rule; nil if the local limiter has none for it.
func algorithmOf(words []string, isAligned bool) algorithm.Algorithm {
	if len(words) < 3 {
		return nil
	}
	// 60 and 500ms are durations.
	d, err := time.ParseDuration(strings.TrimSuffix(words[len(words)-1], "s") + "s")
	limit, rate, length := units(words[1]), units(words[2]), int64(d)
	if err != nil || limit < 1 || d < time.Millisecond {
		return nil
	}
	buckets := []string{"GCRA", "TOKENBUCKET", "LEAKYBUCKET"}
	switch word := words[0]; {
	case len(words) == 4 && rate > 0 && slices.Contains(buckets, word):
		unit := (length + rate - 1) / rate
		return &algorithm.Bucket{IsQueue: word == "LEAKYBUCKET", Limit: limit, Unit: unit}
	case len(words) != 3:
	case word == "FIXED":
		return &algorithm.FixedWindow{Limit: limit, Window: length, IsAligned: isAligned}
	case word == "SLIDING":
		return &algorithm.SlidingWindow{Limit: limit, Window: length, Tick: max(1000, length>>20)}
	case word == "SLIDINGLOG":
		return &algorithm.SlidingLog{Limit: limit, Window: length, Slot: 1}
	}
	return nil
}

// commit takes the units of a call that is allowed.
func (s *Server) commit(c *call) {
	if c.verdict.Allowed && c.verdict.State != nil {
		c.state = c.verdict.State
		s.keys[c.key] = c
	}
}

// five returns the reply of one rule.
func (c *call) five() []any {
	taken, v := oneIf(c.verdict.Allowed), c.verdict
	if c.options.Partial {
		taken *= c.granted
	}
	return []any{taken, v.Limit, v.Remaining, millis(v.RetryAfter), millis(v.ResetAfter)}
}

func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// settle takes units, also beyond the limit, or gives them back if they are below 0.
func (s *Server) settle(c *call, units int64) []any {
	now := s.nowNanos()
	c.state, c.options.Partial = c.Add(c.state, now, units), false
	if s.keys[c.key] = c; c.state == nil {
		delete(s.keys, c.key)
	}
	// The limit is exceeded if the last unit would not be allowed.
	last := c.Decide(c.Add(c.state, now, -1), now, 1)
	c.verdict = c.Decide(c.state, now, 0)
	if c.verdict.Allowed, c.verdict.RetryAfter = last.Allowed, 0; !last.Allowed {
		c.verdict.RetryAfter = last.RetryAfter
	}
	return c.five()
}

// all runs a command of several rules.
func (s *Server) all(words []string, takes bool) (any, error) {
	var rows []*call
	isDenied := false
	for at := 0; at+1 < len(words); at += 2 {
		c, err := s.decide(words[at], strings.Fields(words[at+1]))
		if err != nil {
			return nil, err
		}
		rows, isDenied = append(rows, c), isDenied || !c.verdict.Allowed
	}
	if len(rows) == 0 {
		return nil, errNotComputed
	}
	at, least, leastLeft := 0, int64(math.MaxInt64), int64(math.MaxInt64)
	var wait time.Duration
	var fives []any
	for row, c := range rows {
		score, left := int64(math.MaxInt64), c.verdict.Remaining
		switch {
		case isDenied && c.verdict.Allowed:
			// Nothing is taken.
			c.verdict = c.Decide(c.state, s.nowNanos(), 0)
			c.verdict.RetryAfter, c.verdict.State = 0, nil
		case isDenied && c.verdict.RetryAfter < 0:
			score = math.MinInt64
		case isDenied:
			score = -int64(c.verdict.RetryAfter)
		case c.options.Cost > 0:
			kept := algorithm.LeftUnits(c.options.Leave, c.verdict.Limit)
			score = max(0, left-kept) / c.options.Cost
		}
		// The longest wait decides a denial, otherwise the fewest further calls.
		if score < least || score == least && !isDenied && left < leastLeft {
			at, least, leastLeft = row, score, left
		}
		if takes && !isDenied {
			s.commit(c)
		}
		wait, fives = max(wait, c.verdict.RetryAfter), append(fives, c.five())
	}
	whole := *rows[at]
	if whole.options.Partial = false; !isDenied {
		// The longest wait of the leaky buckets.
		whole.verdict.RetryAfter = wait
	}
	return append(append(whole.five(), int64(at+1)), fives...), nil
}
