package throttle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
	var unavailable *Unavailable
	switch {
	case errors.As(e.Err, &rejected):
		fields["error"] = rejected.Kind
	case errors.As(e.Err, &unavailable):
		fields["error"], fields["reason"] = "unavailable", string(unavailable.Reason)
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

func TestOpen_breakers_and_added_hooks_see_an_outage(t *testing.T) {
	var kinds []string
	note := func(name string) func(Event) {
		return func(event Event) { kinds = append(kinds, fmt.Sprint(name, event.Degraded)) }
	}
	opts := []Option{WithBreaker(1, time.Second), WithOnDecision(note("first"))}
	inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
		limiter.OnDecision(func(Event) { panic("a hook") })
		limiter.OnDecision(nil)
		limiter.OnDecision(note("last"))
		if open := limiter.OpenBreakers(); open != 0 {
			t.Error(open)
		}
		s.add([]any{"silent", []any{1.0, 10.0, 9.0, 0.0, 6000.0}}, "")
		mustCheck(t, limiter, context.Background())
		if open := limiter.OpenBreakers(); open != 1 {
			t.Error(open)
		}
		time.Sleep(time.Second)
		mustCheck(t, limiter, context.Background())
		if open := limiter.OpenBreakers(); open != 0 {
			t.Error(open)
		}
	})
	if want := "[firsttrue lasttrue firstfalse lastfalse]"; fmt.Sprint(kinds) != want {
		t.Error(kinds)
	}
}

// logged is a text that several goroutines write, as a timer of the limiter does.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logging makes the default logger write to a text, until the end of the test.
func logging(t *testing.T) *logged {
	lines, before := &logged{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(lines, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return lines
}

func TestLogs_decisions_without_the_server_once_per_second(t *testing.T) {
	lines := logging(t)
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		s.add([]any{"refuse"}, "")
		for range 7 {
			mustCheck(t, limiter, context.Background())
		}
		time.Sleep(990 * time.Millisecond)
		if count := strings.Count(lines.String(), "\n"); count != 1 {
			t.Errorf("%d lines: %s", count, lines)
		}
		time.Sleep(20 * time.Millisecond)
		s.add([]any{"refuse"}, "")
		mustCheck(t, limiter, context.Background())
	})
	const text = "%d calls decided without the server: connection"
	rest := lines.String()
	for _, count := range []int{1, 6, 1} {
		var ok bool
		_, rest, ok = strings.Cut(rest, fmt.Sprintf(text, count))
		if !ok || strings.Contains(rest, "rl:") {
			t.Fatal(count, lines)
		}
	}
}

func TestLogs_nothing_if_it_is_off(t *testing.T) {
	for isOn, count := range map[bool]int{true: 1, false: 0} {
		lines := logging(t)
		opts := []Option{WithLogErrors(isOn)}
		inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
			s.add([]any{"refuse"}, "")
			if d := mustCheck(t, limiter, context.Background()); !d.Degraded {
				t.Error(d)
			}
		})
		if got := strings.Count(lines.String(), "\n"); got != count {
			t.Errorf("%d lines if it is %t: %s", got, isOn, lines)
		}
	}
}

func TestHook_gets_events_and_its_panic_changes_nothing(t *testing.T) {
	s := newScript()
	var events []Event
	limiter := newTestLimiter(t, s, WithHMACSecret("0123456789abcdef"),
		WithOnDecision(func(event Event) {
			events = append(events, event)
			panic("a hook")
		}))
	var log strings.Builder
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	s.add([]any{[]any{0.0, 10.0, 0.0, 6000.0, 60000.0}, object{"error": "WRONGTYPE of a key"}}, "")
	ctx, item := context.Background(), testRule().Of("user:42")
	d, err := limiter.Check(ctx, item)
	if err != nil || d.Allowed || d.String() != "api: denied, again in 6s (server)" {
		t.Fatal(d, err)
	}
	if _, err := limiter.Charge(ctx, item); err == nil {
		t.Error("a wrong type")
	}
	if err := limiter.Close(ctx); err != nil {
		t.Error(err)
	}
	if len(events) != 2 || events[0].Kind != EventCheck || events[1].Kind != EventRejected {
		t.Fatal(events)
	}
	if len(events[0].KeyHash) != 16 || events[1].Err == nil || events[1].Decision != nil {
		t.Error(events)
	}
	slog.Info("decided", "event", events[0])
	for _, wanted := range []string{"panicked", "event.kind=check", "event.allowed=false"} {
		if !strings.Contains(log.String(), wanted) {
			t.Errorf("no %s in %s", wanted, log.String())
		}
	}
	if strings.Contains(log.String(), "user:42") {
		t.Error("the log has the subject")
	}
}
