package redisrate

import (
	"fmt"
	"time"
)

// Limit is Rate events per Period, and Burst of them at once. The server refills an event after
// each Period / Rate. Rate and Burst are from 0 to 10^12, with a rate of at most 10^9 per second,
// and Period is from 1 ms to 366 days in whole microseconds: a call with another limit is an error.
// A Rate or Burst of 0 denies all events, without a call to the server.
type Limit struct {
	Rate   int
	Burst  int
	Period time.Duration
}

// PerSecond returns a limit of rate events per second, all of them at once.
func PerSecond(rate int) Limit { return per(time.Second, rate) }

// PerMinute returns a limit of rate events per minute, all of them at once.
func PerMinute(rate int) Limit { return per(time.Minute, rate) }

// PerHour returns a limit of rate events per hour, all of them at once.
func PerHour(rate int) Limit { return per(time.Hour, rate) }

func per(period time.Duration, rate int) Limit {
	return Limit{Rate: rate, Burst: rate, Period: period}
}

// IsZero returns true for the limit without values.
func (l Limit) IsZero() bool { return l == Limit{} }

func (l Limit) deniesAll() bool { return l.Rate == 0 || l.Burst == 0 }

// units are the names of the common periods.
var units = map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}

// String returns the limit in a form for logs, such as "10 req/s (burst 10)".
func (l Limit) String() string {
	unit, ok := units[l.Period]
	if !ok {
		unit = l.Period.String()
	}
	return fmt.Sprintf("%d req/%s (burst %d)", l.Rate, unit, l.Burst)
}

// Result is the result of a call.
type Result struct {
	// Limit is the limit of the call.
	Limit Limit
	// Allowed is the number of events that may happen; 0 if the call is denied.
	Allowed int
	// Remaining is the number of events that could happen now.
	Remaining int
	// RetryAfter is -1 if the call is allowed. Otherwise it is the time until the same call could
	// be allowed. A call of more events than Burst is never allowed; its RetryAfter is the time
	// until that number of events would be free without the burst; throttle.Never for a Rate of 0.
	RetryAfter time.Duration
	// ResetAfter is the time until all of Burst could happen at once.
	ResetAfter time.Duration
}
