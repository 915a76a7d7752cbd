package throttle

import "time"

// breaker stops the calls to a node that does not answer. The node's mutex guards it.
type breaker struct {
	failuresMax int
	pause       time.Duration
	failures    int
	// probeAt is the instant from which the next call is the probe.
	probeAt time.Time
	// isProbing says whether the probe's caller waits. The probe began at probeBegan.
	isProbing  bool
	probeBegan time.Time
}

// isTripped returns true if the failures in a row suffice to stop calls.
func (b *breaker) isTripped() bool { return b.failures >= b.failuresMax }

// isOpen returns true if a call must not pass.
func (b *breaker) isOpen(now time.Time) bool {
	return b.isTripped() && (b.isProbing || now.Before(b.probeAt))
}

// fail counts a failure. The pause of an open breaker begins at the given instant.
func (b *breaker) fail(from time.Time) {
	b.failures++
	b.probeAt = from.Add(b.pause)
}
