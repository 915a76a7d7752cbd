package throttle

import "time"

// outcome is the end of a call, as the breaker sees it.
type outcome int

const (
	// neither says nothing about the server, such as if the caller gave up.
	neither outcome = iota
	answered
	failed
)

// breaker stops the calls to a node that does not answer. The node's mutex guards it.
type breaker struct {
	failuresMax int
	pause       time.Duration
	failures    int
	closedAt    time.Time
	isProbing   bool
}

func (b *breaker) isOpen() bool {
	if b.failures < b.failuresMax {
		return false
	}
	return b.isProbing || time.Now().Before(b.closedAt)
}

// enter lets a call pass. It returns true if the call is the probe.
func (b *breaker) enter() bool {
	isProbe := b.failures >= b.failuresMax
	b.isProbing = b.isProbing || isProbe
	return isProbe
}

func (b *breaker) ended(o outcome, isProbe bool) {
	if isProbe {
		b.isProbing = false
	}
	switch o {
	case answered:
		b.failures = 0
	case failed:
		b.failures++
		b.closedAt = time.Now().Add(b.pause)
	}
}
