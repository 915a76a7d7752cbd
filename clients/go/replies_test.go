package throttle

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestOdd_replies_are_rejected(t *testing.T) {
	for _, reply := range []any{
		"OK", nil, 1.0, []any{}, []any{1.0}, []any{1.0, 2.0, 3.0, -2.0, 0.0},
		[]any{[]any{}, 1.0, 1.0, 1.0, 1.0}, []any{-1.0, 1.0, 1.0, 0.0, 0.0},
	} {
		s := newScript()
		limiter := newTestLimiter(t, s)
		for range 12 {
			s.add([]any{reply}, "")
		}
		for method, err := range callsOfAll(limiter, context.Background(), testRule().Of("a")) {
			var rejected *CommandRejected
			switch method {
			case "lease", "reserve", "block", "forget":
			default:
				if !errors.As(err, &rejected) || rejected.Kind != "PROTOCOL" {
					t.Errorf("%s of %v: %v", method, reply, err)
				}
			}
		}
		if err := limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// FuzzReplies reads replies of any shape, which must not panic.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5}, false)
	f.Add([]byte{9, 1, 6, 5, 0, 9, 9, 1, 6, 5, 0, 9, 8, 8, 1, 1}, true)
	rules := []*Rule{testRule(), Must(Policy("p")), Must(Lease("l", 3, time.Second))}
	f.Fuzz(func(t *testing.T, bytes []byte, isPartial bool) {
		reply, _ := fuzzed(bytes, 0)
		var items []*keyedItem
		for _, rule := range rules {
			keyed := &keyedItem{rule: rule, cost: 2, partial: isPartial}
			items = append(items, keyed)
			if d, err := readDecision(reply, keyed); err == nil {
				styles := []HeaderStyle{Draft11, XRateLimit}
				_, _ = d.String(), d.Headers(HeaderOptions{Styles: styles})
				_ = d.aged(time.Second).Problem()
			}
			_, _ = readSettled(reply, rule)
			_, _ = readSeveral(reply, items)
		}
		_, _ = readInteger(reply)
	})
}

// fuzzed returns a value of a reply that bytes describe, and the rest.
func fuzzed(bytes []byte, depth int) (any, []byte) {
	if len(bytes) == 0 {
		return nil, nil
	}
	first, rest := bytes[0], bytes[1:]
	switch {
	case first < 200 || depth > 4:
		return int64(int8(first)) << (first % 60), rest
	case first < 210:
		return string(rest), nil
	case first < 215:
		return nil, rest
	}
	list := []any{}
	for range first % 12 {
		var one any
		one, rest = fuzzed(rest, depth+1)
		list = append(list, one)
	}
	return list, rest
}
