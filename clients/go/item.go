package throttle

import (
	"fmt"
	"slices"
	"time"
)

// reservationTTL is the ttl of a reservation, unless it is given.
const reservationTTL = 30 * time.Second

// Item is a rule with a subject, and what a call takes: one unit, unless it has a cost or a
// reservation. [Rule.Of] makes it. It is a value: each method returns another item. A call with an
// invalid item returns its error.
type Item struct {
	rule    *Rule
	subject string
	cost    int64
	hasCost bool
	leave   string
	// ttl is the ttl of a reservation, otherwise 0.
	ttl time.Duration
	err error
}

// Rule returns the item's rule.
func (i Item) Rule() *Rule { return i.rule }

// Subject returns the item's subject.
func (i Item) Subject() string { return i.subject }

// Cost returns the item with another cost, from 0 to 10^12 units. Leases and backoffs have none,
// and a reservation has its own.
func (i Item) Cost(units int64) Item {
	if i.err == nil && i.ttl != 0 {
		i.err = invalid("cost", "no cost with the reservation of "+i.rule.name)
	}
	i.cost, i.hasCost = units, true
	return i
}

// Leave returns the item as one that leaves units to other calls: it is denied if fewer would
// remain. Not for backoffs.
func (i Item) Leave(units int64) Item {
	i.leave = intWord(units)
	return i.checked(checkInt("leave", units, 0, maxUnits))
}

// LeavePercent returns the item as one that leaves a share of the limit, from 0 to 100 per cent,
// rounded down to units.
func (i Item) LeavePercent(share int) Item {
	i.leave = fmt.Sprintf("%d%%", share)
	return i.checked(checkInt("leave", int64(share), 0, 100))
}

// Reserve returns the item as a reservation: its units count as used until it is committed or
// cancelled, or its ttl is over. It is for [Fixed], [Quota] and [Policy], on servers with the
// module. A ttl of 0 is 30 seconds.
func (i Item) Reserve(units int64, ttl time.Duration) Item {
	if ttl == 0 {
		ttl = reservationTTL
	}
	if i.rule == nil {
		// The call that gets the item refuses it.
		return i
	}
	if i.err == nil && !slices.Contains([]Kind{KindFixed, KindQuota, KindPolicy}, i.rule.kind) {
		i.err = invalid("rule", "fixed, quota or a policy; "+i.rule.name+" is not")
	}
	if i.err == nil && i.hasCost {
		i.err = invalid("reserve", "no reservation with the cost of "+i.rule.name)
	}
	i.cost, i.ttl = units, ttl
	return i.checked(checkDuration("ttl", ttl))
}

// checked returns the item with an error, unless it has one.
func (i Item) checked(err error) Item {
	if i.err == nil {
		i.err = err
	}
	return i
}
