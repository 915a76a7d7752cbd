package throttle

import (
	"errors"
	"math"
	"regexp"
	"time"

	"redis-throttle.invalid/go/internal/algorithm"
)

func notADecision() error {
	return &CommandRejected{Kind: "PROTOCOL", Message: "the reply is not a decision"}
}

// integers returns the first count integers of a reply, at most seven.
func integers(reply []any, count int) (all [7]int64, err error) {
	if len(reply) < count {
		return all, notADecision()
	}
	for at := range count {
		number, ok := reply[at].(int64)
		if !ok {
			return all, notADecision()
		}
		all[at] = number
	}
	return all, nil
}

// afterMillis returns a duration of a reply. Below 0 it means never.
func afterMillis(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return Never - 1
	}
	return time.Duration(ms) * time.Millisecond
}

func isHealthy(ms ...int64) bool {
	for _, one := range ms {
		if one < -1 {
			return false
		}
	}
	return true
}

// readDecision reads a decision: five integers, or seven under a policy.
func readDecision(reply any, keyed *keyedItem) (Decision, error) {
	list, ok := reply.([]any)
	// Without the module a policy is its default.
	isPolicy := keyed.rule.kind == KindPolicy && (len(list) > 5 || keyed.rule.fallback == nil)
	count := 5
	if isPolicy {
		count = 7
	}
	if !ok || len(list) != count {
		return Decision{}, notADecision()
	}
	n, err := integers(list, count)
	most := int64(1)
	if keyed.partial {
		most = keyed.cost
	}
	if err != nil || n[0] < 0 || n[0] > most || !isHealthy(n[3], n[4]) {
		return Decision{}, notADecision()
	}
	granted := n[0]
	if granted > 0 && !keyed.partial {
		granted = keyed.cost
	}
	d := decisionOf(Decision{
		Allowed: n[0] > 0, Limit: n[1], Remaining: n[2], Granted: granted,
		RetryAfter: afterMillis(n[3]), ResetAfter: afterMillis(n[4]), Source: SourceServer,
	}, keyed.rule)
	d.Banned = d.Never && !d.Allowed && !keyed.isTooLarge(d.Limit)
	if isPolicy {
		d.WouldAllow, d.WouldRetryAfter = n[5] > 0, afterMillis(n[6])
		if d.WouldRetryAfter < 0 {
			d.WouldRetryAfter = Never
		}
	}
	return d, nil
}

// readSettled reads the reply of a charge, a refund or the end of a reservation: five integers,
// also under a policy.
func readSettled(reply any, rule *Rule) (Decision, error) {
	list, ok := reply.([]any)
	n, err := integers(list, 5)
	if err != nil || !ok || len(list) != 5 || n[0] < 0 || !isHealthy(n[3], n[4]) {
		return Decision{}, notADecision()
	}
	return decisionOf(Decision{
		Allowed: n[0] > 0, Limit: n[1], Remaining: n[2], Granted: min(1, max(0, n[0])),
		RetryAfter: afterMillis(n[3]), ResetAfter: afterMillis(n[4]), Source: SourceServer,
	}, rule), nil
}

// readSeveral reads a reply of RL.ALL: five integers, the number of the rule that decided, and a
// row for each rule.
func readSeveral(reply any, items []*keyedItem) (Decision, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 6+len(items) {
		return Decision{}, notADecision()
	}
	rows := make([]Decision, len(items))
	for at, keyed := range items {
		row, err := readDecision(list[6+at], keyed)
		if err != nil {
			return Decision{}, err
		}
		rows[at] = row
	}
	number, isInt := list[5].(int64)
	if !isInt || number < 1 || number > int64(len(items)) {
		return Decision{}, notADecision()
	}
	deciding := int(number) - 1
	whole, err := readSettled(list[:5:5], items[deciding].rule)
	if err != nil {
		return Decision{}, err
	}
	whole.Rows, whole.Deciding, whole.WouldAllow = rows, deciding, true
	whole.Granted, whole.Banned = rows[deciding].Granted, rows[deciding].Banned
	for _, row := range rows {
		if !row.WouldAllow {
			whole.WouldAllow = false
			whole.WouldRetryAfter = max(whole.WouldRetryAfter, row.WouldRetryAfter)
		}
	}
	return whole, nil
}

func readInteger(reply any) (int64, error) {
	number, ok := reply.(int64)
	if !ok {
		return 0, notADecision()
	}
	return number, nil
}

// tooMany matches the error of a key that remembers too many ids. RL.ALL adds the rule's number.
var tooMany = regexp.MustCompile(`^ERR (rule \d+: )?too many reservations`)

// tooManyDenial returns the denial of a call whose key has no room for another reservation. The ids
// expire, so the program did nothing wrong.
func tooManyDenial(err error, items []*keyedItem) (Decision, bool) {
	var rejected *CommandRejected
	if !errors.As(err, &rejected) || !tooMany.MatchString(rejected.Message) {
		return Decision{}, false
	}
	deciding := -1
	rows := make([]Decision, len(items))
	for at, keyed := range items {
		row := Decision{
			Allowed: true, Limit: keyed.rule.limit, Granted: keyed.cost, Source: SourceServer,
		}
		if deciding < 0 && keyed.ttl != 0 {
			deciding = at
			row.Allowed, row.Granted, row.RetryAfter = false, 0, algorithm.Millis(int64(keyed.ttl))
			row.ResetAfter = row.RetryAfter
		}
		rows[at] = decisionOf(row, keyed.rule)
	}
	if deciding < 0 {
		return Decision{}, false
	}
	whole := rows[deciding]
	whole.Rows, whole.Deciding = rows, deciding
	return whole, true
}
