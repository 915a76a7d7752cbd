package throttle

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// timeline is a timeline of cases.json: a frozen clock, a scripted server, and what happens when.
type timeline struct {
	Name      string
	Languages []string
	Options   object
	Nodes     object
	Rules     []object
	Steps     []object
}

const longestTimeline = 2 * time.Minute

func TestTimelines(t *testing.T) {
	var all []timeline
	readShared(t, "timelines", &all)
	for _, one := range all {
		if one.Languages != nil && !slices.Contains(one.Languages, "go") {
			continue
		}
		t.Run(one.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newRunner(t, one).run(one.Steps) })
		})
	}
}

// result is the end of an action.
type result struct {
	decision     Decision
	returns      any
	err          error
	began, ended time.Time
}

// action is an action under way.
type action struct {
	ended  chan struct{}
	result result
	cancel context.CancelFunc
}

// guard is a lease or an admission.
type guard interface{ Held() bool }

// runner runs one timeline.
type runner struct {
	t       *testing.T
	limiter *Limiter
	script  *script
	rules   map[string]*Rule
	guards  sync.Map
	started map[string]*action
	began   time.Time
	// seen is the number of commands before this step.
	seen int
}

func newRunner(t *testing.T, of timeline) *runner {
	r := &runner{
		t: t, script: newScript(), rules: map[string]*Rule{},
		started: map[string]*action{}, began: time.Now(),
	}
	for _, one := range of.Rules {
		r.rules[one["name"].(string)] = Must(ruleOf(one))
	}
	opts, err := optionsOf(of.Options)
	if err != nil {
		t.Fatal(err)
	}
	var dialer Dialer = r.script
	if of.Nodes != nil {
		r.setNodes(of.Nodes)
		dialer = routed{r.script}
	}
	limiter, err := New(dialer, append(opts, WithLogErrors(false))...)
	if err != nil {
		t.Fatal(err)
	}
	limiter.x.jitter, limiter.x.afterFunc = func() float64 { return 1 }, r.script.afterFunc
	r.limiter = limiter
	return r
}

func (r *runner) guard(id string) guard {
	held, _ := r.guards.Load(id)
	return held.(guard)
}

// setNodes sets the nodes of a cluster by subject.
func (r *runner) setNodes(given object) {
	nodes := map[string]string{}
	for rule := range r.rules {
		for subject, node := range given {
			nodes[keyOf(rule, subject)] = node.(string)
		}
	}
	r.script.mu.Lock()
	defer r.script.mu.Unlock()
	r.script.nodes = nodes
}

// optionsOf returns the options of a limiter as cases.json writes them.
func optionsOf(given object) ([]Option, error) {
	o := defaults()
	var all []Option
	for name, value := range given {
		number, _ := value.(float64)
		count, ms := int(number), time.Duration(number*float64(time.Millisecond))
		switch name {
		case "timeout_ms":
			all = append(all, WithTimeout(ms))
		case "silence_ms":
			all = append(all, WithSilence(ms))
		case "on_error":
			all = append(all, WithOnError(OnError(value.(string))))
		case "max_in_flight":
			all = append(all, WithMaxInFlight(count))
		case "max_waiting":
			all = append(all, WithMaxWaiting(count))
		case "known_denials":
			all = append(all, WithKnownDenials(count))
		case "breaker_failures":
			o.breakerFailures = count
		case "breaker_pause_ms":
			o.breakerPause = ms
		case "denial_cache":
			o.denialCache = count
		case "denial_cache_max_ms":
			o.denialCacheMax = ms
		default:
			return nil, errors.New("the option " + name)
		}
	}
	return append(all, WithBreaker(o.breakerFailures, o.breakerPause),
		option(func(of *options) {
			of.denialCache, of.denialCacheMax = o.denialCache, o.denialCacheMax
		})), nil
}

func (r *runner) run(steps []object) {
	for _, step := range steps {
		r.step(step)
	}
	r.end()
}

// end checks that all replies were sent, and closes the limiter.
func (r *runner) end() {
	left := slices.DeleteFunc(r.script.left(), func(item any) bool { return item == "refuse" })
	if len(left) > 0 {
		r.t.Errorf("replies are left: %v", left)
	}
	r.script.mu.Lock()
	r.script.isOver = true
	r.script.mu.Unlock()
	for _, one := range r.started {
		one.cancel()
	}
	if err := r.limiter.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
}

func repliesOf(of object) []any {
	if server, ok := of["server"]; ok {
		return []any{server}
	}
	servers, _ := of["servers"].([]any)
	return servers
}

func (r *runner) sleepUntil(at time.Duration) {
	time.Sleep(at - time.Since(r.began))
	synctest.Wait()
}

func (r *runner) step(step object) {
	at := time.Duration(step["at"].(float64)) * time.Millisecond
	if time.Since(r.began) > at {
		r.t.Fatalf("the step at %v begins at %v", at, time.Since(r.began))
	}
	dials := r.script.seen().dials
	r.sleepUntil(at - 1)
	r.script.add(repliesOf(step), "")
	calls := callsOf(step)
	for _, one := range calls {
		if one["at"] == nil {
			r.script.add(repliesOf(one), keyOfAction(one))
		}
	}
	if nodes, ok := step["nodes"].(object); ok {
		r.setNodes(nodes)
	}
	r.sleepUntil(at)
	results := r.results(calls)
	synctest.Wait()
	now := r.script.seen()
	if len(now.unexpected) > 0 {
		r.t.Fatalf("at %v: commands without a reply: %v", at, now.unexpected)
	}
	now.dials -= dials
	r.compareStep(at, step, results, now)
}

// callsOf returns the actions of a step.
func callsOf(step object) []object {
	calls, ok := step["calls"].([]any)
	if !ok {
		return []object{step}
	}
	var all []object
	for _, one := range calls {
		times, ok := one.(object)["times"].(float64)
		for left := max(1, int(times)); left > 0 || !ok && left > 0; left-- {
			all = append(all, one.(object))
		}
	}
	return all
}

// results begins actions at one instant, and returns the results of those that end in this step.
func (r *runner) results(calls []object) []result {
	open := r.script.hold()
	begun := make([]*action, len(calls))
	for at, one := range calls {
		begun[at] = r.begin(one)
		synctest.Wait()
	}
	open()
	var results []result
	for at, one := range begun {
		if one == nil {
			continue
		}
		select {
		case <-one.ended:
		case <-time.After(longestTimeline):
			r.t.Fatal("an action does not end")
		}
		results = append(results, one.result)
		if expected, ok := calls[at]["expect"].(object); ok && calls[at]["at"] == nil {
			r.compare(one.result, expected)
		}
	}
	return results
}

func (r *runner) compareStep(at time.Duration, step object, results []result, now seen) {
	sent := now.sent[r.seen:]
	r.seen = len(now.sent)
	expected, _ := step["expect"].(object)
	rest := object{}
	for name, wanted := range expected {
		switch name {
		case "sent":
			r.compareSent(at, sent, wanted.([]any), step["calls"] == nil)
		case "dials":
			r.equal(fmt.Sprintf("dials at %v", at), float64(now.dials), wanted)
		case "generation":
			r.equal("generation", float64(now.generation), wanted)
		case "held":
			for id, isHeld := range wanted.(object) {
				r.equal(fmt.Sprintf("held %s at %v", id, at), r.guard(id).Held(), isHeld)
			}
		case "counters":
			r.compareCounters(wanted.(object))
		case "outcomes":
			counted := object{}
			for _, one := range results {
				kind, ok := one.field("reason").(string)
				if !ok {
					kind = one.field("source").(string)
				}
				count, _ := counted[kind].(float64)
				counted[kind] = count + 1
			}
			r.equal("outcomes", counted, wanted)
		default:
			rest[name] = wanted
		}
	}
	if len(rest) > 0 {
		r.compare(results[0], rest)
	}
}

func (r *runner) compareCounters(wanted object) {
	r.t.Helper()
	c := r.limiter.Counters()
	counts := map[string]int64{
		"allowed": c.Allowed, "denied": c.Denied, "degraded": c.Degraded,
		"local": c.Local, "rejected": c.Rejected, "unsettled": c.Unsettled,
	}
	for kind, count := range wanted {
		r.equal(kind, float64(counts[kind]), count)
	}
}

func (r *runner) equal(what string, got, wanted any) {
	r.t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		r.t.Errorf("%s: got %v, want %v", what, got, wanted)
	}
}

// compareSent compares the beginnings of commands.
func (r *runner) compareSent(at time.Duration, sent []string, wanted []any, isInOrder bool) {
	got, beginnings := slices.Clone(sent), []string{}
	for _, one := range wanted {
		beginnings = append(beginnings, one.(string))
	}
	if !isInOrder {
		slices.Sort(got)
		slices.Sort(beginnings)
	}
	isEqual := len(got) == len(beginnings)
	for index := range got {
		isEqual = isEqual && strings.HasPrefix(got[index], beginnings[index])
	}
	if !isEqual {
		r.t.Errorf("sent at %v: got %q\nwant %q", at, got, beginnings)
	}
}

func (r *runner) compare(of result, expected object) {
	r.t.Helper()
	for name, wanted := range expected {
		if name != "rows" {
			r.equal(fmt.Sprintf("%s of %v, %v", name, of.decision, of.err), of.field(name), wanted)
			continue
		}
		rows := of.known().Rows
		r.equal("the number of rows", len(rows), len(wanted.([]any)))
		for at, row := range wanted.([]any) {
			r.equal("row", fieldsOfCase(rows[at], row.(object)), row)
		}
	}
}

// known returns the decision, which a Denied has as well.
func (o result) known() Decision {
	var denied *Denied
	if errors.As(o.err, &denied) {
		return denied.Decision
	}
	return o.decision
}

// field returns a field of a result as cases.json writes it.
func (o result) field(name string) any {
	var unavailable *Unavailable
	switch {
	case name == "after_ms":
		return float64(o.ended.Sub(o.began)) / float64(time.Millisecond)
	case name == "returns":
		return o.returns
	case name == "raises":
		if o.err == nil {
			return nil
		}
		if o.err == ErrClosed {
			return "Closed"
		}
		return reflect.TypeOf(o.err).Elem().Name()
	case name == "reason" && errors.As(o.err, &unavailable):
		return string(unavailable.Reason)
	}
	return field(o.known(), name)
}
