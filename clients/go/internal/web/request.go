// Package web calls the functions of the options of the middlewares.
package web

import (
	"log/slog"
	"runtime"
	"sync"
	"unicode/utf8"

	throttle "redis-throttle.invalid/go"
)

// Subject calls a key function. One that fails on what is missing, such as the first value of a
// field, finds no subject, which is logged once of the function; other panics are the program's. A
// subject that is not UTF-8 is none: a client can write such a field.
func Subject(failed *sync.Once, key func() string) (subject string) {
	defer func() {
		problem := recover()
		if _, isMissing := problem.(runtime.Error); !isMissing && problem != nil {
			panic(problem)
		}
		if problem != nil {
			subject = ""
			failed.Do(func() {
				slog.Error("redis-throttle: a key function panicked, so there is no subject",
					"panic", problem)
			})
		}
	}()
	if subject = key(); !utf8.ValidString(subject) {
		return ""
	}
	return subject
}

const costMax = 1_000_000_000_000

// IsCost returns true if a call can have the cost that a function returned. Otherwise it is logged
// once of the function.
func IsCost(failed *sync.Once, units int64) bool {
	if units >= 0 && units <= costMax {
		return true
	}
	failed.Do(func() {
		slog.Error("redis-throttle: a cost function returned a number that is no cost, so the "+
			"request is refused; expected 0 to 10^12", "cost", units)
	})
	return false
}

// Counts has the counts of rules.
type Counts struct{ failed sync.Map }

// Of returns true if a response with this status counts under a rule. If the rule's count panics,
// the response counts, which is logged once of each rule's name.
func (c *Counts) Of(rule *throttle.Rule, status int) (isCounted bool) {
	defer func() {
		if problem := recover(); problem != nil {
			isCounted = true
			if _, isKnown := c.failed.LoadOrStore(rule.Name(), true); !isKnown {
				slog.Error("redis-throttle: a count panicked, so the response counts",
					"rule", rule.Name(), "panic", problem)
			}
		}
	}()
	return rule.Count().Counts(status)
}
