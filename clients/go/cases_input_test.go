package throttle

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// object is an object of cases.json.
type object = map[string]any

// sharedCase is a case of a table of cases.json, which all clients share.
type sharedCase struct {
	Name   string
	Input  any
	Expect any
}

// readShared reads a section of cases.json.
func readShared(t *testing.T, section string, into any) {
	t.Helper()
	text, err := os.ReadFile("../cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all[section], into); err != nil {
		t.Fatal(err)
	}
}

// errText is the error of a text that no Go program can pass as this argument, such as a fractional
// number of units.
type errText struct{ text string }

func (e errText) Error() string { return "not expressible in Go: " + e.text }

var durationText = regexp.MustCompile(`^(\d+(?:\.\d{1,6})?)(ms|s|m|h|d)?$`)

// durationOf returns the duration that a case writes: a number is seconds.
func durationOf(given any) (time.Duration, error) {
	text, ok := given.(string)
	if !ok {
		number, _ := given.(float64)
		return time.Duration(math.Round(number * float64(time.Second))), nil
	}
	parts := durationText.FindStringSubmatch(text)
	if parts == nil {
		return 0, errText{text}
	}
	unit := map[string]time.Duration{
		"ms": time.Millisecond, "": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour,
		"d": 24 * time.Hour,
	}[parts[2]]
	number, err := strconv.ParseFloat(parts[1], 64)
	return time.Duration(number*float64(unit) + 0.5), err
}

// spec reads the fields of a rule in cases.json. Its err is the first error.
type spec struct {
	object
	err error
}

func (s *spec) units(name string) int64 {
	number, _ := s.object[name].(float64)
	if number != float64(int64(number)) {
		s.err = errors.Join(s.err, invalid(name, "an integer"))
	}
	return int64(number)
}

func (s *spec) duration(name string) time.Duration {
	d, err := durationOf(s.object[name])
	s.err = errors.Join(s.err, err)
	return d
}

func (s *spec) text(name string) string {
	text, _ := s.object[name].(string)
	return text
}

// options returns the options that the spec has.
func (s *spec) options() []RuleOption {
	var all []RuleOption
	for name := range s.object {
		switch name {
		case "on_error":
			all = append(all, WithOnError(OnError(s.text(name))))
		case "local_share":
			all = append(all, WithLocalShare(s.object[name].(float64)))
		case "prefetch":
			all = append(all, WithPrefetch(s.units(name)))
		case "count":
			count := map[string]Count{"all": CountAll, "failures": CountFailures}[s.text(name)]
			all = append(all, WithCount(count))
		case "aligned":
			all = append(all, Aligned())
		case "slots":
			all = append(all, Slots(s.units(name)))
		case "zone":
			all = append(all, Zone(s.text(name)))
		case "start":
			all = append(all, Start(fmt.Sprint(s.object[name])))
		case "variants":
			for _, variant := range s.object[name].([]any) {
				all = append(all, Variants(variant.(string)))
			}
		case "default":
			rule, err := ruleOf(s.object[name])
			s.err = errors.Join(s.err, err)
			all = append(all, Default(rule))
		}
	}
	return all
}

// ruleOf returns the rule that a case describes.
func ruleOf(given any) (*Rule, error) {
	s := &spec{object: given.(object)}
	name, options := s.text("name"), s.options()
	var rule *Rule
	var err error
	buckets := map[string]func(string, int64, int64, time.Duration, ...RuleOption) (*Rule, error){
		"gcra": GCRA, "token_bucket": TokenBucket, "leaky_bucket": LeakyBucket,
	}
	windows := map[string]func(string, int64, time.Duration, ...RuleOption) (*Rule, error){
		"fixed": Fixed, "sliding": Sliding, "sliding_log": SlidingLog,
	}
	switch kind := s.text("kind"); kind {
	case "gcra":
		rule, err = GCRA(name, s.units("burst"), s.units("rate"), s.duration("period"), options...)
	case "token_bucket", "leaky_bucket":
		capacity, rate := s.units("capacity"), s.units("rate")
		rule, err = buckets[kind](name, capacity, rate, s.duration("period"), options...)
	case "fixed", "sliding", "sliding_log":
		rule, err = windows[kind](name, s.units("limit"), s.duration("window"), options...)
	case "backoff":
		base, longest := s.duration("base"), s.duration("max")
		attempts, forget := s.units("attempts"), s.duration("forget")
		rule, err = Backoff(name, attempts, base, longest, forget, options...)
	case "quota":
		rule, err = Quota(name, s.units("limit"), Unit(s.text("unit")), options...)
	case "lease":
		rule, err = Lease(name, s.units("limit"), s.duration("ttl"), options...)
	case "policy":
		rule, err = Policy(name, options...)
	default:
		err = fmt.Errorf("a rule of the kind %s", kind)
	}
	if s.err != nil {
		return nil, s.err
	}
	return rule, err
}

// itemOf returns the item of a rule that a case describes.
func itemOf(rule *Rule, given object) (Item, error) {
	s := &spec{object: given}
	item := rule.Of(s.text("subject"))
	if given["cost"] != nil {
		item = item.Cost(s.units("cost"))
	}
	switch leave := given["leave"].(type) {
	case float64:
		item = item.Leave(int64(leave))
	case string:
		var share int
		if _, err := fmt.Sscanf(leave, "%d%%", &share); err != nil {
			return item, errText{leave}
		}
		item = item.LeavePercent(share)
	}
	if given["reserve"] != nil {
		ttl := time.Duration(0)
		if given["ttl"] != nil {
			ttl = s.duration("ttl")
			if ttl == 0 {
				// Zero is the default in Go.
				s.err = errText{"0ms"}
			}
		}
		item = item.Reserve(s.units("reserve"), ttl)
	}
	return item, s.err
}

// field returns a field of a decision as cases.json writes it.
func field(d Decision, name string) any {
	ms := func(d time.Duration) any {
		if d == Never {
			return float64(1<<53 - 1)
		}
		return float64(d) / float64(time.Millisecond)
	}
	reason := any(string(d.Reason))
	if d.Reason == "" {
		reason = nil
	}
	return map[string]any{
		"allowed": d.Allowed, "limit": float64(d.Limit), "remaining": float64(d.Remaining),
		"granted": float64(d.Granted), "retry_after_ms": ms(d.RetryAfter),
		"reset_after_ms": ms(d.ResetAfter), "never": d.Never, "banned": d.Banned,
		"would_allow":          d.WouldAllow,
		"would_retry_after_ms": ms(d.WouldRetryAfter), "rule": d.Rule,
		"deciding": float64(d.Deciding), "source": string(d.Source), "degraded": d.Degraded,
		"reason": reason,
	}[name]
}

// replyOf returns a reply of cases.json as a connection returns it.
func replyOf(given any) any {
	switch reply := given.(type) {
	case float64:
		return int64(reply)
	case []any:
		all := make([]any, len(reply))
		for at, one := range reply {
			all[at] = replyOf(one)
		}
		return all
	}
	return given
}
