package throttle

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fieldsOfCase returns the fields of a decision that a case has.
func fieldsOfCase(d Decision, wanted object) object {
	fields := object{}
	for name := range wanted {
		fields[name] = field(d, name)
	}
	return fields
}

func wordsOf(c *call, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	words := make([]any, len(c.words))
	for at, word := range c.words {
		words[at] = word
	}
	return words, nil
}

// itemsOf returns the items of a case with a rule or with rules.
func itemsOf(input object) ([]*keyedItem, error) {
	rules, ok := input["rules"].([]any)
	if !ok {
		rules = []any{input["rule"]}
	}
	var items []*keyedItem
	for _, one := range rules {
		rule, err := ruleOf(one)
		if err != nil {
			return nil, err
		}
		cost, hasCost := input["cost"].(float64)
		if !hasCost {
			cost = 1
		}
		item, err := itemOf(rule, object{"subject": "a", "leave": input["leave"]})
		if err != nil {
			return nil, err
		}
		items = append(items, &keyedItem{
			rule: rule, cost: int64(cost), leave: item.leave, partial: input["partial"] == true,
		})
	}
	return items, nil
}

// decisionFor returns the decision that a case about headers or problems describes.
func decisionFor(input object) (Decision, error) {
	items, err := itemsOf(input)
	if err != nil {
		return Decision{}, err
	}
	if input["source"] == "error" {
		d := Decision{Allowed: input["allowed"] == true, Limit: 6, Source: SourceError}
		ms, _ := input["retry_after_ms"].(float64)
		d.RetryAfter = time.Duration(ms) * time.Millisecond
		return decisionOf(d, items[0].rule).withoutServer(&Unavailable{Reason: ReasonTimeout}), nil
	}
	if len(items) > 1 {
		return readSeveral(replyOf(input["reply"]), items)
	}
	return readDecision(replyOf(input["reply"]), items[0])
}

func singleOf(input object) (any, error) {
	rule, err := ruleOf(input["rule"])
	if err != nil {
		return nil, err
	}
	item, err := itemOf(rule, input)
	if err != nil {
		return nil, err
	}
	if item.err != nil {
		return nil, item.err
	}
	k, _ := newKeys("rl", "", "")
	key, err := k.key(rule.name, item.subject, nil)
	if err != nil {
		return nil, err
	}
	keyed := &keyedItem{rule: rule, key: key, cost: item.cost, leave: item.leave}
	keyed.partial = input["partial"] == true
	keyed.id, _ = input["id"].(string)
	switch method := input["method"].(string); method {
	case "forget":
		return wordsOf(forgetCall(key), nil)
	case "block":
		d, err := durationOf(input["duration"])
		if err != nil {
			return nil, err
		}
		return wordsOf(blockCall(key, d))
	case "renew":
		return wordsOf(renewCall(keyed), nil)
	case "release":
		return wordsOf(releaseCall(keyed), nil)
	case "check":
		if rule.kind == KindLease {
			return nil, invalid("rule", "no lease")
		}
		return wordsOf(singleCall("CHECK", keyed))
	case "lease":
		return wordsOf(singleCall("CHECK", keyed))
	default:
		return wordsOf(singleCall(strings.ToUpper(method), keyed))
	}
}

func severalOf(input object) (any, error) {
	l := &Limiter{options: &options{onError: Allow}}
	l.keys, _ = newKeys("rl", "", "")
	l.decider = &decider{options: l.options}
	var o callOptions
	if id, ok := input["id"].(string); ok {
		o.id = &id
	}
	if tag, ok := input["tag"].(string); ok {
		o.tag = &tag
	}
	var items []Item
	for _, one := range input["calls"].([]any) {
		rule, err := ruleOf(one.(object)["rule"])
		if err != nil {
			return nil, err
		}
		item, err := itemOf(rule, one.(object))
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	keyed, err := l.withKeys(items, o)
	if err != nil {
		return nil, err
	}
	return wordsOf(severalCall(keyed, input["method"] == "peek_all"))
}

func keyOfCase(input object) (any, error) {
	s := &spec{object: input}
	prefix, ok := input["prefix"].(string)
	if !ok {
		prefix = "rl"
	}
	k, err := newKeys(prefix, s.text("hash_tag"), s.text("hmac_secret"))
	if err != nil {
		return nil, err
	}
	var tag *string
	if text, ok := input["tag"].(string); ok {
		tag = &text
	}
	return k.key(s.text("rule"), s.text("subject"), tag)
}

// optionsOfCase returns the options of a limiter, after those of the case.
func optionsOfCase(input object) (options, error) {
	o := defaults()
	given, err := optionsOf(input)
	if err != nil {
		return o, err
	}
	for _, one := range given {
		one.applyLimiter(&o)
	}
	o.settle()
	return o, o.check()
}

func defaultsOfCase(input, wanted object) (any, error) {
	o, err := optionsOfCase(input)
	if err != nil {
		return nil, err
	}
	absent := func(isAbsent bool) any {
		if isAbsent {
			return nil
		}
		return "present"
	}
	all := object{
		"timeout_ms": float64(o.timeout.Milliseconds()), "on_error": string(o.onError),
		"silence_ms":    float64(o.silence.Milliseconds()),
		"max_in_flight": float64(o.maxInFlight), "breaker_failures": float64(o.breakerFailures),
		"max_waiting": float64(o.maxWaiting), "known_denials": float64(o.knownDenials),
		"breaker_pause_ms":    float64(o.breakerPause.Milliseconds()),
		"denial_cache":        float64(o.denialCache),
		"denial_cache_max_ms": float64(o.denialCacheMax.Milliseconds()),
		"prefetch":            float64(o.prefetch),
		"backend":             string(o.backend), "prefix": o.prefix, "log_errors": o.logsErrors,
		"hash_tag": absent(o.hashTag == ""), "hmac_secret": absent(!o.hasSecret),
		"on_decision": absent(o.onDecision == nil),
	}
	for name := range all {
		if _, ok := wanted[name]; !ok && len(input) > 0 {
			delete(all, name)
		}
	}
	return all, nil
}

// optionsNamed returns the expected names of options that the error of wrong options has.
func optionsNamed(input object, wanted []any) (any, error) {
	_, err := optionsOfCase(input)
	var wrong *InvalidArgument
	if !errors.As(err, &wrong) {
		return nil, err
	}
	named := []any{}
	for _, name := range wanted {
		words := strings.Split(strings.TrimSuffix(name.(string), "_ms"), "_")
		for at, word := range words[1:] {
			words[at+1] = strings.ToUpper(word[:1]) + word[1:]
		}
		if strings.Contains(err.Error(), strings.Join(words, "")) {
			named = append(named, name)
		}
	}
	return named, nil
}

func headersOf(input object) (any, error) {
	d, err := decisionFor(input)
	if err != nil {
		return nil, err
	}
	var o HeaderOptions
	if styles, ok := input["styles"].([]any); ok {
		o.Styles = []HeaderStyle{}
		for _, style := range styles {
			o.Styles = append(o.Styles, HeaderStyle(style.(string)))
		}
	}
	if now, ok := input["now_ms"].(float64); ok {
		o.Now = time.UnixMilli(int64(now))
	}
	fields := object{}
	for name, value := range d.Headers(o) {
		fields[name] = value
	}
	return fields, nil
}

func problemOf(input object) (any, error) {
	p := NoSubject()
	if input["no_subject"] != true {
		d, err := decisionFor(input)
		if err != nil {
			return nil, err
		}
		p = d.Problem()
		if denied := (&Denied{Decision: d}); denied.Status() != p.Status {
			return nil, denied
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var body object
	err = json.Unmarshal(text, &body)
	return object{"status": float64(p.Status), "body": body}, err
}

func addressOf(input object) (any, error) {
	texts := func(name string) []string {
		var all []string
		for _, one := range input[name].([]any) {
			all = append(all, one.(string))
		}
		return all
	}
	proxies, err := TrustProxies(texts("trusted")...)
	if err != nil {
		return nil, err
	}
	peer, _ := input["peer"].(string)
	subject, ok := proxies.Subject(peer, texts("forwarded"))
	if !ok {
		return nil, nil
	}
	return subject, nil
}

// sections run the cases of the tables.
var sections = map[string]func(input any, wanted any) (any, error){
	"durations": func(input, _ any) (any, error) {
		d, err := durationOf(input)
		if err != nil {
			return nil, err
		}
		rule, err := Fixed("name", 1, d)
		if err != nil {
			return nil, err
		}
		return rule.words[2], nil
	},
	"rates": func(input, _ any) (any, error) {
		units, period, err := Rate(input.(string)).Parse()
		return object{"rate": float64(units), "period": durationWord(period)}, err
	},
	"calls":     func(input, _ any) (any, error) { return singleOf(input.(object)) },
	"calls_all": func(input, _ any) (any, error) { return severalOf(input.(object)) },
	"invalid_rules": func(input, _ any) (any, error) {
		_, err := ruleOf(input)
		var wrong *InvalidArgument
		if !errors.As(err, &wrong) {
			return nil, err
		}
		snake := strings.NewReplacer("onError", "on_error", "localShare", "local_share")
		return snake.Replace(wrong.Argument), nil
	},
	"keys": func(input, _ any) (any, error) { return keyOfCase(input.(object)) },
	"replies": func(input, wanted any) (any, error) {
		d, err := decisionFor(input.(object))
		return fieldsOfCase(d, wanted.(object)), err
	},
	"replies_all": func(input, wanted any) (any, error) {
		d, err := decisionFor(input.(object))
		if err != nil {
			return nil, err
		}
		whole, rows := wanted.(object)["decision"].(object), []any{}
		for at, row := range wanted.(object)["rows"].([]any) {
			rows = append(rows, fieldsOfCase(d.Rows[at], row.(object)))
		}
		return object{"decision": fieldsOfCase(d, whole), "rows": rows}, nil
	},
	"retry_after": func(input, _ any) (any, error) {
		after := afterMillis(int64(input.(float64)))
		seconds := Decision{RetryAfter: after, Never: after < 0}.retrySeconds()
		if seconds == noSeconds {
			return nil, nil
		}
		return strconv.FormatInt(seconds, 10), nil
	},
	"headers":   func(input, _ any) (any, error) { return headersOf(input.(object)) },
	"problems":  func(input, _ any) (any, error) { return problemOf(input.(object)) },
	"addresses": func(input, _ any) (any, error) { return addressOf(input.(object)) },
	"failure": func(input, _ any) (any, error) {
		var all []OnError
		for _, one := range input.([]any) {
			all = append(all, OnError(one.(string)))
		}
		return string(strictest(all)), nil
	},
	"errors": func(input, _ any) (any, error) {
		var rejected *CommandRejected
		if errors.As(classified(ServerError(input.(string))), &rejected) {
			return "rejected", nil
		}
		return "unavailable", nil
	},
	"defaults": func(input, wanted any) (any, error) {
		return defaultsOfCase(input.(object), wanted.(object))
	},
	"invalid_options": func(input, wanted any) (any, error) {
		return optionsNamed(input.(object), wanted.([]any))
	},
}

// isExpectedError returns true if the error is of the kind that a case expects.
func isExpectedError(err error, kind any) bool {
	var wrong *InvalidArgument
	var rejected *CommandRejected
	var text errText
	if kind == "protocol" {
		return errors.As(err, &rejected)
	}
	return errors.As(err, &wrong) || errors.As(err, &text)
}

func TestSharedCases(t *testing.T) {
	text, err := os.ReadFile("../cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for section := range all {
		if slices.Contains([]string{"timelines", "events", "key_parts", "responses"}, section) {
			continue // TestTimelines, and the tests of the middlewares, run these.
		}
		run := sections[section]
		if run == nil {
			t.Errorf("nothing runs the section %s", section)
			continue
		}
		var cases []sharedCase
		readShared(t, section, &cases)
		for _, one := range cases {
			t.Run(section+"/"+one.Name, func(t *testing.T) {
				result, err := run(one.Input, one.Expect)
				if wanted, ok := one.Expect.(object); ok && wanted["error"] != nil {
					if !isExpectedError(err, wanted["error"]) {
						t.Fatalf("got %v and the error %v", result, err)
					}
					return
				}
				if err != nil || !reflect.DeepEqual(result, one.Expect) {
					t.Fatalf("got %v, %v\nwant %v", result, err, one.Expect)
				}
			})
		}
	}
}
