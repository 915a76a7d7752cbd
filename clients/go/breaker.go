package throttle

import "time"

// breaker stops the calls to a node that does not reply. The node's mutex guards it.
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

// fail counts a failure. The last one of those in a row opens the breaker. Later ones do not
// prolong its pause, except while a probe is in flight.
func (b *breaker) fail(now time.Time) {
	b.failures++
	switch {
	case b.failures == b.failuresMax:
		b.probeAt = now.Add(b.pause)
	case b.isProbing:
		b.reopen()
	}
}

// reopen begins another pause at the begin of the probe, which failed.
func (b *breaker) reopen() { b.probeAt = b.probeBegan.Add(b.pause) }
