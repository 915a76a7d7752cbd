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

// keyedItem is an item of a call with its key.
type keyedItem struct {
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
func (k *keyedItem) isHeld() bool { return k.ttl != 0 || k.rule.kind == KindLease }

// holdTTL returns the ttl of a lease or of a reservation.
func (k *keyedItem) holdTTL() time.Duration {
	if k.ttl != 0 {
		return k.ttl
	}
	return k.rule.ttl
}

// isTooLarge returns true if the call is above a limit. A call that is never allowed although it is
// not is banned.
func (k *keyedItem) isTooLarge(limit int64) bool {
	return limit > 0 && k.knownCost()+algorithm.LeftUnits(k.leave, limit) > limit
}

// isPlain returns true for a call of one unit without options.
func (k *keyedItem) isPlain() bool { return k.cost == 1 && !k.partial && k.leave == "" }

// check validates the options of a call, which depend on the rule.
func (k *keyedItem) check() error {
	least := int64(0)
	if k.partial {
		least = 1
	}
	if err := checkInt("cost", k.cost, least, maxUnits); err != nil {
		return err
	}
	kind, name := k.rule.kind, k.rule.name
	if kind == KindLease || kind == KindBackoff {
		switch {
		case k.cost != 1:
			return invalid("cost", "1 for "+name)
		case k.partial:
			return invalid("partial", "a rule that takes a cost; "+name+" does not")
		case kind == KindBackoff && k.leave != "":
			return invalid("leave", "nothing for the backoff "+name)
		}
	}
	if !k.isHeld() {
		return nil
	}
	if k.ttl != 0 {
		return checkID(k.id, idMax)
	}
	return checkID(k.id, leaseIDMax)
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
func (k *keyedItem) words() []string {
	var options []string
	if k.cost != 1 || k.partial {
		options = append(options, "COST", intWord(k.cost))
	}
	if k.partial {
		options = append(options, "PARTIAL")
	}
	if k.leave != "" {
		options = append(options, "LEAVE", k.leave)
	}
	words := k.rule.withOptions(options)
	switch {
	case k.ttl != 0:
		return append([]string{"RESERVE", k.id, durationWord(k.ttl)}, words...)
	case k.rule.kind == KindLease:
		return append([]string{words[0], k.id}, words[1:]...)
	}
	return words
}

// withDefault returns the item for a server without the module, where a policy is its default.
func (k *keyedItem) withDefault() *keyedItem {
	other := *k
	other.rule = k.rule.decider()
	return &other
}

// call is a command, its keys, and whether it writes.
type call struct {
	words  []string
	keys   []string
	isRead bool
	items  []*keyedItem
	// isSeveral says whether the reply has a row for each item.
	isSeveral bool
	// isKnowable says whether the call is denied by known denials, and replaces them.
	isKnowable bool
	// start is the moment before the call was sent. denied is the known denial that ended it.
	start  callStart
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
func singleCall(verb string, keyed *keyedItem) (*call, error) {
	if err := keyed.check(); err != nil {
		return nil, err
	}
	if keyed.rule.kind == KindLease && (verb == "REFUND" || verb == "CHARGE") {
		return nil, invalid("rule", "a rule with a cost; "+keyed.rule.name+" is a lease")
	}
	return oneCall(verb, keyed), nil
}

func oneCall(verb string, keyed *keyedItem) *call {
	all := keyed.words()
	words := make([]string, 0, len(all)+2)
	if verb == "CHECK" {
		words = append(append(words, keyed.rule.command, keyed.key), all[1:]...)
	} else {
		words = append(append(words, "RL."+verb, keyed.key), all...)
	}
	c := &call{
		words: words, keys: []string{keyed.key}, isRead: verb == "PEEK",
		items: []*keyedItem{keyed},
	}
	if keyed.rule.fallback != nil {
		c.withoutModule = func() *call { return oneCall(verb, keyed.withDefault()) }
	}
	return c
}

// severalCall returns the call of RL.ALL or RL.PEEKALL.
func severalCall(items []*keyedItem, isPeek bool) (*call, error) {
	if len(items) < 1 || len(items) > itemsMax {
		return nil, invalid("items", fmt.Sprintf("1 to %d items", itemsMax))
	}
	seen := map[string]bool{}
	for _, keyed := range items {
		if seen[keyed.key] {
			return nil, invalid("items", "no repeated key")
		}
		seen[keyed.key] = true
		if err := keyed.check(); err != nil {
			return nil, err
		}
		if keyed.isHeld() {
			if err := checkSpaces(keyed.id); err != nil {
				return nil, err
			}
		}
	}
	return joinedCall(items, isPeek), nil
}

func joinedCall(items []*keyedItem, isPeek bool) *call {
	c := &call{words: []string{"RL.ALL"}, isRead: isPeek, items: items, isSeveral: true}
	if isPeek {
		c.words[0] = "RL.PEEKALL"
	}
	for _, keyed := range items {
		c.keys = append(c.keys, keyed.key)
		c.words = append(c.words, keyed.key, joined(keyed.words()))
		if keyed.rule.fallback != nil {
			c.withoutModule = func() *call { return joinedCall(defaultsOf(items), isPeek) }
		}
	}
	return c
}

func defaultsOf(items []*keyedItem) []*keyedItem {
	all := make([]*keyedItem, len(items))
	for at, keyed := range items {
		all[at] = keyed.withDefault()
	}
	return all
}

// budget returns the time left for the call and those that follow it; nil for a whole timeout.
func (c *call) budget() *budget {
	if len(c.items) == 0 {
		return nil
	}
	return c.items[0].budget
}

// isHolding returns true if the server keeps a part of the call under its id.
func (c *call) isHolding() bool { return slices.ContainsFunc(c.items, (*keyedItem).isHeld) }

// decide reads the reply once, for all that need it.
func (c *call) decide(reply any) { c.decision, c.err = c.read(reply) }

// read reads the reply as a decision.
func (c *call) read(reply any) (Decision, error) {
	if c.isSeveral {
		return readSeveral(reply, c.items)
	}
	return readDecision(reply, c.items[0])
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

func renewCall(keyed *keyedItem) *call {
	c := keyCall(keyed.key, "RL.RENEW", keyed.id, durationWord(keyed.rule.ttl))
	c.isRenewal = true
	return c
}

func releaseCall(keyed *keyedItem) *call { return keyCall(keyed.key, "RL.RELEASE", keyed.id) }

// reserveCall renews a reservation. It leaves nothing to others: they may have taken what had to
// remain when it began.
func reserveCall(keyed *keyedItem) *call {
	renewal := *keyed
	renewal.leave = ""
	c := keyCall(keyed.key, "RL.RESERVE", renewal.words()[1:]...)
	c.isRenewal = true
	return c
}

// commitCall always has a cost: without one the server would charge what was reserved.
func commitCall(keyed *keyedItem, units int64) *call {
	words := keyed.rule.withOptions([]string{"COST", intWord(units)})
	return keyCall(keyed.key, "RL.COMMIT", append([]string{keyed.id}, words...)...)
}

func cancelCall(keyed *keyedItem) *call {
	return keyCall(keyed.key, "RL.CANCEL", append([]string{keyed.id}, keyed.rule.words...)...)
}

// probeCall returns a call that every back end runs and that writes nothing.
func probeCall(key string) *call {
	c := keyCall(key, "RL.PEEK", "GCRA", "1", "1", "1", "COST", "0")
	c.isRead = true
	return c
}
