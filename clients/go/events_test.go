package throttle

import (
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
)

// eventCase is a case of the events: a timeline of one instant, and what its calls report.
type eventCase struct {
	timeline
	Expect struct {
		Events   []object
		Counters object
	}
}

// fieldsOf returns the fields of an event as cases.json writes them.
func fieldsOf(e Event) object {
	fields := object{"kind": string(e.Kind), "rule": e.Rule.Name()}
	if d := e.Decision; d != nil {
		names := []string{
			"allowed", "source", "limit", "remaining", "retry_after_ms", "degraded",
		}
		for _, name := range names {
			fields[name] = field(*d, name)
		}
		if d.Degraded {
			fields["reason"] = string(d.Reason)
		}
		if len(d.Rows) > 0 {
			rules := []any{}
			for _, row := range d.Rows {
				rules = append(rules, row.Rule)
			}
			fields["rules"] = rules
		}
	}
	var rejected *CommandRejected
	var away *Unavailable
	switch {
	case errors.As(e.Err, &rejected):
		fields["error"] = rejected.Kind
	case errors.As(e.Err, &away):
		fields["error"], fields["reason"] = "unavailable", string(away.Reason)
	}
	return fields
}

func (c *eventCase) run(t *testing.T) {
	var events []Event
	r := newRunner(t, c.timeline)
	r.limiter.OnDecision(func(e Event) { events = append(events, e) })
	for _, step := range c.Steps {
		step["at"] = 0.0
		r.step(step)
	}
	var found []object
	for _, one := range events {
		found = append(found, fieldsOf(one))
		if len(one.KeyHash) != 16 || one.Latency != 0 {
			t.Errorf("the hash %q and the latency %v", one.KeyHash, one.Latency)
		}
		if one.Degraded != (one.Decision != nil && one.Decision.Degraded) {
			t.Errorf("%+v", one)
		}
	}
	if !reflect.DeepEqual(found, c.Expect.Events) {
		t.Errorf("events %v\nwant %v", found, c.Expect.Events)
	}
	r.compareCounters(c.Expect.Counters)
	r.end()
}

func TestEvents_follow_the_shared_cases(t *testing.T) {
	var all []eventCase
	readShared(t, "events", &all)
	for _, one := range all {
		t.Run(one.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { one.run(t) })
		})
	}
	if len(all) < 10 {
		t.Errorf("%d cases", len(all))
	}
}
