package throttle

import (
	"context"
	"errors"
	"strings"
	"time"
)

var actionNames = []string{
	"check", "peek", "refund", "charge", "forget", "block", "wait", "check_all", "peek_all",
	"check_each", "admit", "settle", "finish", "lease", "release", "ready", "close", "join",
	"cancel", "disconnect", "pause",
}

func actionOf(one object) string {
	for _, name := range actionNames {
		if _, ok := one[name]; ok {
			return name
		}
	}
	return ""
}

// keyOfAction returns the key or the id of a call. Its own replies are for the commands with it.
func keyOfAction(one object) string {
	name := actionOf(one)
	if name == "admit" {
		return one["id"].(string)
	}
	if id, ok := one[name].(string); ok {
		return id
	}
	given, ok := one[name].([]any)
	if !ok {
		return ""
	}
	rule, ok := given[0].(string)
	if !ok {
		return ""
	}
	if name == "lease" {
		return given[2].(string)
	}
	return keyOf(rule, given[1].(string))
}

// keyOf returns the key of a timeline's subject under a rule.
func keyOf(rule, subject string) string {
	return "rl:" + rule + ":" + strings.ReplaceAll(subject, ":", "%3A")
}

// begin begins an action. It returns nil unless the action ends in this step.
func (r *runner) begin(one object) *action {
	name := actionOf(one)
	switch name {
	case "":
		return nil
	case "disconnect":
		r.script.disconnect()
		return nil
	case "pause":
		r.script.pause(time.Duration(one[name].(float64)) * time.Millisecond)
		return nil
	case "cancel":
		r.started[one[name].(string)].cancel()
		return nil
	case "join":
		return r.started[one[name].(string)]
	}
	ctx, cancel := context.WithCancel(context.Background())
	begun := &action{ended: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(begun.ended)
		begun.result = r.act(ctx, name, one)
	}()
	if start, ok := one["start"].(string); ok {
		r.started[start] = begun
		return nil
	}
	return begun
}

func (r *runner) act(ctx context.Context, name string, one object) result {
	done := result{began: time.Now()}
	done.decision, done.returns, done.err = r.call(ctx, name, one)
	done.ended = time.Now()
	return done
}

// item returns the item that a timeline writes as a list.
func (r *runner) item(given any) Item {
	list := given.([]any)
	fields := object{"subject": list[1]}
	if len(list) > 2 {
		switch third := list[2].(type) {
		case float64:
			fields["cost"] = third
		case object:
			for name, value := range third {
				fields[name] = value
			}
		}
	}
	item, err := itemOf(r.rules[list[0].(string)], fields)
	if err != nil {
		r.t.Error(err)
	}
	return item
}

func (r *runner) items(given any) []Item {
	var all []Item
	for _, one := range given.([]any) {
		all = append(all, r.item(one))
	}
	return all
}

// call calls the method of an action.
func (r *runner) call(
	ctx context.Context, name string, one object,
) (d Decision, out any, err error) {
	l, given := r.limiter, one[name]
	switch name {
	case "ready":
		backend, err := l.Ready(ctx)
		return d, string(backend), err
	case "close":
		return d, nil, l.Close(ctx)
	case "check_all":
		d, err = l.CheckAll(ctx, r.items(given))
	case "peek_all":
		d, err = l.PeekAll(ctx, r.items(given))
	case "check_each":
		d, err = l.CheckEach(ctx, r.items(given))
	case "admit", "settle", "finish", "lease", "release":
		return r.hold(ctx, name, one)
	default:
		return r.callOfItem(ctx, name, given.([]any))
	}
	return d, nil, err
}

func (r *runner) callOfItem(
	ctx context.Context, name string, given []any,
) (d Decision, out any, err error) {
	l := r.limiter
	switch name {
	case "wait":
		longest := time.Duration(given[2].(float64)) * time.Millisecond
		d, err = l.Wait(ctx, r.item(given[:2]), longest)
		return d, nil, err
	case "block":
		duration, err := durationOf(given[2])
		if err == nil {
			err = l.Block(ctx, r.item(given[:2]), duration)
		}
		return d, nil, err
	}
	item := r.item(given)
	switch name {
	case "check":
		var opts []CallOption
		if fields, ok := given[len(given)-1].(object); ok && fields["partial"] == true {
			opts = append(opts, Partial())
		}
		d, err = l.Check(ctx, item, opts...)
	case "peek":
		d, err = l.Peek(ctx, item)
	case "refund":
		d, err = l.Refund(ctx, item)
	case "charge":
		d, err = l.Charge(ctx, item)
	case "forget":
		out, err = l.Forget(ctx, item)
	}
	return d, out, err
}

// hold enters, settles or leaves the block of a lease or of an admission.
func (r *runner) hold(
	ctx context.Context, name string, one object,
) (d Decision, out any, err error) {
	switch given := one[name].(type) {
	case string:
		if name == "release" {
			r.guard(given).(*Permit).Release(ctx)
		} else {
			r.guard(given).(*Admission).Finish(ctx)
		}
		return d, nil, nil
	case []any:
		switch name {
		case "settle":
			admitted := r.guard(given[0].(string)).(*Admission)
			return d, nil, admitted.Settle(r.rules[given[1].(string)], int64(given[2].(float64)))
		case "lease":
			id := given[2].(string)
			permit, err := r.limiter.Lease(ctx, r.item(given[:2]), ID(id))
			if err != nil {
				return d, nil, err
			}
			r.guards.Store(id, permit)
			return permit.Decision(), nil, nil
		}
		id := one["id"].(string)
		admitted, err := r.limiter.Admit(ctx, r.items(given), ID(id))
		if err != nil {
			return d, nil, err
		}
		r.guards.Store(id, admitted)
		return admitted.Decision(), nil, nil
	}
	return d, nil, errors.New("an unknown action")
}
