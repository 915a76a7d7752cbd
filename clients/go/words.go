package throttle

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"redis-throttle.invalid/go/internal/algorithm"
)

const (
	leaseIDMax = 128
	idMax      = 64
	itemsMax   = 16
)

// ask is one rule with its key and what a call takes.
type ask struct {
	rule         *Rule
	key, subject string
	cost         int64
	partial      bool
	// leave is the number of units or the percentage that is left to others; empty if none.
	leave string
	// id names a lease or a reservation.
	id string
	// ttl is the ttl of a reservation, otherwise 0.
	ttl time.Duration
	// isWhole says whether the whole limit decides in this process, without regard to localShare.
	isWhole bool
	// budget is shared with the calls that follow; nil for a whole timeout.
	budget *budget
}

// budget is the time left for several calls. If it ends, denial decides, unless it is nil.
type budget struct {
	left   time.Duration
	denial *Decision
}

// isHeld returns true if the server keeps the call under its id.
func (a *ask) isHeld() bool { return a.ttl != 0 || a.rule.kind == KindLease }

// holdTTL returns the ttl of a lease or of a reservation.
func (a *ask) holdTTL() time.Duration {
	if a.ttl != 0 {
		return a.ttl
	}
	return a.rule.ttl
}

// isTooLarge returns true if the call is above a limit. A call that is never allowed although it is
// not is banned.
func (a *ask) isTooLarge(limit int64) bool {
	return limit > 0 && a.knownCost()+algorithm.LeftUnits(a.leave, limit) > limit
}

// isPlain returns true for a call of one unit without options.
func (a *ask) isPlain() bool { return a.cost == 1 && !a.partial && a.leave == "" }

// check validates the options of a call, which depend on the rule.
func (a *ask) check() error {
	least := int64(0)
	if a.partial {
		least = 1
	}
	if err := checkInt("cost", a.cost, least, maxUnits); err != nil {
		return err
	}
	kind, name := a.rule.kind, a.rule.name
	if kind == KindLease || kind == KindBackoff {
		switch {
		case a.cost != 1:
			return invalid("cost", "1 for "+name)
		case a.partial:
			return invalid("partial", "a rule that takes a cost; "+name+" does not")
		case kind == KindBackoff && a.leave != "":
			return invalid("leave", "nothing for the backoff "+name)
		}
	}
	if !a.isHeld() {
		return nil
	}
	if a.ttl != 0 {
		return checkID(a.id, idMax)
	}
	return checkID(a.id, leaseIDMax)
}

func checkID(id string, most int) error {
	if len(id) < 1 || len(id) > most {
		return invalid("id", fmt.Sprintf("1 to %d bytes for a lease or a reservation", most))
	}
	return nil
}

func checkSpaces(id string) error {
	if strings.ContainsFunc(id, unicode.IsSpace) {
		return invalid("id", "no white space")
	}
	return nil
}

// words returns the words after the key.
func (a *ask) words() []string {
	var options []string
	if a.cost != 1 || a.partial {
		options = append(options, "COST", intWord(a.cost))
	}
	if a.partial {
		options = append(options, "PARTIAL")
	}
	if a.leave != "" {
		options = append(options, "LEAVE", a.leave)
	}
	words := a.rule.withOptions(options)
	switch {
	case a.ttl != 0:
		return append([]string{"RESERVE", a.id, durationWord(a.ttl)}, words...)
	case a.rule.kind == KindLease:
		return append([]string{words[0], a.id}, words[1:]...)
	}
	return words
}

// withDefault returns the ask for a server without the module, where a policy is its default.
func (a *ask) withDefault() *ask {
	other := *a
	other.rule = a.rule.decider()
	return &other
}

// call is a command, its keys, and whether it writes.
type call struct {
	words  []string
	keys   []string
	isRead bool
	asks   []*ask
	// isSeveral says whether the reply has a row for each ask.
	isSeveral bool
	// isKnowable says whether the call is denied by known denials, and replaces them.
	isKnowable bool
	// asked is the moment before the call was sent. denied is the known denial that ended it.
	asked  asked
	denied *Decision
	// limit is the call's time, if it is not the limiter's timeout; that of Ready, whose command is
	// no sign of silence.
	limit time.Duration
	// isLast says whether the call is sent although the limiter closes.
	isLast bool
	// isRenewal says whether the call renews what is held.
	isRenewal bool
	// isSent says whether the command was written.
	isSent bool
	// decision and err are what the reply says, of a call that isKnowable.
	decision Decision
	err      error
	// late is nil of a call that holds nothing.
	late *late
	// withoutModule returns the call for a server without the module; nil if it is the same.
	withoutModule func() *call
}

// singleCall returns the call of a verb, such as CHECK or PEEK, under one rule.
func singleCall(verb string, a *ask) (*call, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	if a.rule.kind == KindLease && (verb == "REFUND" || verb == "CHARGE") {
		return nil, invalid("rule", "a rule with a cost; "+a.rule.name+" is a lease")
	}
	return oneCall(verb, a), nil
}

func oneCall(verb string, a *ask) *call {
	all := a.words()
	words := make([]string, 0, len(all)+2)
	if verb == "CHECK" {
		words = append(append(words, a.rule.command, a.key), all[1:]...)
	} else {
		words = append(append(words, "RL."+verb, a.key), all...)
	}
	c := &call{words: words, keys: []string{a.key}, isRead: verb == "PEEK", asks: []*ask{a}}
	if a.rule.fallback != nil {
		c.withoutModule = func() *call { return oneCall(verb, a.withDefault()) }
	}
	return c
}

// severalCall returns the call of RL.ALL or RL.PEEKALL.
func severalCall(asks []*ask, isPeek bool) (*call, error) {
	if len(asks) < 1 || len(asks) > itemsMax {
		return nil, invalid("items", fmt.Sprintf("1 to %d items", itemsMax))
	}
	seen := map[string]bool{}
	for _, a := range asks {
		if seen[a.key] {
			return nil, invalid("items", "no repeated key")
		}
		seen[a.key] = true
		if err := a.check(); err != nil {
			return nil, err
		}
		if a.isHeld() {
			if err := checkSpaces(a.id); err != nil {
				return nil, err
			}
		}
	}
	return joinedCall(asks, isPeek), nil
}

func joinedCall(asks []*ask, isPeek bool) *call {
	c := &call{words: []string{"RL.ALL"}, isRead: isPeek, asks: asks, isSeveral: true}
	if isPeek {
		c.words[0] = "RL.PEEKALL"
	}
	for _, a := range asks {
		c.keys = append(c.keys, a.key)
		c.words = append(c.words, a.key, joined(a.words()))
		if a.rule.fallback != nil {
			c.withoutModule = func() *call { return joinedCall(defaultsOf(asks), isPeek) }
		}
	}
	return c
}

func defaultsOf(asks []*ask) []*ask {
	all := make([]*ask, len(asks))
	for at, a := range asks {
		all[at] = a.withDefault()
	}
	return all
}

// budget returns the time left for the call and those that follow it; nil for a whole timeout.
func (c *call) budget() *budget {
	if len(c.asks) == 0 {
		return nil
	}
	return c.asks[0].budget
}

// isHolding returns true if the server keeps a part of the call under its id.
func (c *call) isHolding() bool { return slices.ContainsFunc(c.asks, (*ask).isHeld) }

// decide reads the reply once, for all that need it.
func (c *call) decide(reply any) { c.decision, c.err = c.read(reply) }

// read reads the reply as a decision.
func (c *call) read(reply any) (Decision, error) {
	if c.isSeveral {
		return readSeveral(reply, c.asks)
	}
	return readDecision(reply, c.asks[0])
}

// inLibrary returns the call of the library's function, or of its script if sha1 is not empty. The
// keys of all rules come first, then the rules.
func (c *call) inLibrary(sha1 string) *call {
	verb, isModules := strings.CutPrefix(c.words[0], "RL.")
	if !isModules {
		return c
	}
	var words []string
	if sha1 != "" {
		words = append(words, "EVALSHA", sha1)
	} else {
		command := "FCALL"
		if c.isRead {
			command = "FCALL_RO"
		}
		words = append(words, command, "rl_"+strings.ToLower(verb))
	}
	words = append(append(words, intWord(int64(len(c.keys)))), c.keys...)
	if sha1 != "" {
		words = append(words, verb)
	}
	if !strings.HasSuffix(verb, "ALL") {
		words = append(words, c.words[2:]...)
	} else {
		for at := 2; at < len(c.words); at += 2 {
			words = append(words, c.words[at])
		}
	}
	return &call{words: words, keys: c.keys, isRead: c.isRead}
}

func keyCall(key, command string, words ...string) *call {
	return &call{words: append([]string{command, key}, words...), keys: []string{key}}
}

func forgetCall(key string) *call { return keyCall(key, "DEL") }

func blockCall(key string, d time.Duration) (*call, error) {
	if err := checkDuration("duration", d); err != nil {
		return nil, err
	}
	return keyCall(key, "RL.BLOCK", durationWord(d)), nil
}

func renewCall(a *ask) *call {
	c := keyCall(a.key, "RL.RENEW", a.id, durationWord(a.rule.ttl))
	c.isRenewal = true
	return c
}

func releaseCall(a *ask) *call { return keyCall(a.key, "RL.RELEASE", a.id) }

// reserveCall renews a reservation. It leaves nothing to others: they may have taken what had to
// remain when it began.
func reserveCall(a *ask) *call {
	renewal := *a
	renewal.leave = ""
	c := keyCall(a.key, "RL.RESERVE", renewal.words()[1:]...)
	c.isRenewal = true
	return c
}

// commitCall always has a cost: without one the server would charge what was reserved.
func commitCall(a *ask, units int64) *call {
	words := a.rule.withOptions([]string{"COST", intWord(units)})
	return keyCall(a.key, "RL.COMMIT", append([]string{a.id}, words...)...)
}

func cancelCall(a *ask) *call {
	return keyCall(a.key, "RL.CANCEL", append([]string{a.id}, a.rule.words...)...)
}

// probeCall returns a call that every back end answers and that writes nothing.
func probeCall(key string) *call {
	c := keyCall(key, "RL.PEEK", "GCRA", "1", "1", "1", "COST", "0")
	c.isRead = true
	return c
}
