package throttle

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// logPause is the shortest time between two lines of one reason.
const logPause = time.Second

// errorLog logs the decisions without an answer: the first of a reason at once, the others with
// their number, once a second. It writes no key and no subject. A nil log writes nothing.
type errorLog struct {
	// writing is held while a timer writes, so that nothing is written after the close.
	writing sync.Mutex

	mu      sync.Mutex
	reasons map[Reason]*unlogged
	isOver  bool
}

// unlogged has the number of decisions of a reason since its last line.
type unlogged struct {
	count int
	timer *time.Timer
}

func newErrorLog(isOn bool) *errorLog {
	if !isOn {
		return nil
	}
	return &errorLog{reasons: map[Reason]*unlogged{}}
}

// note counts a decision.
func (l *errorLog) note(reason Reason) {
	if l != nil && l.isFirst(reason) {
		write(reason, 1)
	}
}

// isFirst counts a decision, and returns true if it is logged at once.
func (l *errorLog) isFirst(reason Reason) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.reasons[reason]
	if one != nil {
		one.count++
		return false
	}
	if !l.isOver {
		one = &unlogged{}
		l.reasons[reason] = one
		one.timer = time.AfterFunc(logPause, func() { l.flush(reason) })
	}
	return true
}

// flush writes a line of the decisions since the last one. Without any, the next is logged at once.
func (l *errorLog) flush(reason Reason) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if count := l.rest(reason); count > 0 {
		write(reason, count)
	}
}

// rest returns the number of decisions since the last line, and resets it.
func (l *errorLog) rest(reason Reason) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.reasons[reason]
	if one == nil {
		return 0
	}
	count := one.count
	if count == 0 {
		delete(l.reasons, reason)
	} else {
		one.count = 0
		one.timer.Reset(logPause)
	}
	return count
}

// close writes the rest.
func (l *errorLog) close() {
	if l == nil {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOver = true
	for reason, one := range l.reasons {
		one.timer.Stop()
		if one.count > 0 {
			write(reason, one.count)
		}
	}
	clear(l.reasons)
}

func write(reason Reason, count int) {
	slog.Warn(fmt.Sprintf(
		"redis-throttle: %d calls decided without an answer: %s", count, reason))
}
