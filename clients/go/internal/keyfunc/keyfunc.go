// Package keyfunc calls the key functions of the middlewares.
package keyfunc

import (
	"log/slog"
	"runtime"
	"sync"
	"unicode/utf8"
)

var failed sync.Once

// Subject calls a key function. One that fails on what is missing, such as the first value of a
// field, finds no subject, which is logged once; other panics are the program's. A subject that is
// not UTF-8 is none: a client can write such a field.
func Subject(key func() string) (subject string) {
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
