package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// maxUnits is the largest limit and the largest cost.
	maxUnits    = 1_000_000_000_000
	maxDuration = 366 * 24 * time.Hour
)

// checkInt returns an error unless the value is between the least and the most.
func checkInt(argument string, value, least, most int64) error {
	if value < least || value > most {
		return invalid(argument, fmt.Sprintf("an integer from %d to %d", least, most))
	}
	return nil
}

// checkDuration returns an error unless the server takes the duration.
func checkDuration(argument string, d time.Duration) error {
	if d < time.Millisecond || d > maxDuration || d%time.Microsecond != 0 {
		return invalid(argument, "a duration from 1ms to 366 days, in whole microseconds")
	}
	return nil
}

func intWord(value int64) string { return strconv.FormatInt(value, 10) }

// durationWord writes a duration as the server reads it: in whole seconds, or else in milliseconds
// with up to three decimals.
func durationWord(d time.Duration) string {
	us := d.Microseconds()
	if us%1_000_000 == 0 {
		return intWord(us / 1_000_000)
	}
	whole, rest := us/1000, us%1000
	if rest == 0 {
		return intWord(whole) + "ms"
	}
	return intWord(whole) + "." + strings.TrimRight(fmt.Sprintf("%03d", rest), "0") + "ms"
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
