package throttle

import (
	"errors"
	"testing"
	"time"
)

func TestRate_makes_the_rules_of_its_units_and_period(t *testing.T) {
	rate := Rate("10 per 90s")
	for want, build := range map[string]func() (*Rule, error){
		"api: GCRA 20 10 90":        func() (*Rule, error) { return rate.GCRA("api", 20) },
		"api: TOKENBUCKET 20 10 90": func() (*Rule, error) { return rate.TokenBucket("api", 20) },
		"api: LEAKYBUCKET 20 10 90": func() (*Rule, error) { return rate.LeakyBucket("api", 20) },
		"api: FIXED 10 90 ALIGNED":  func() (*Rule, error) { return rate.Fixed("api", Aligned()) },
		"api: SLIDING 10 90":        func() (*Rule, error) { return rate.Sliding("api") },
		"api: SLIDINGLOG 10 90 SLOTS 16": func() (*Rule, error) {
			return rate.SlidingLog("api", Slots(16))
		},
	} {
		if rule, err := build(); err != nil || rule.String() != want {
			t.Errorf("%v, %v, not %s", rule, err, want)
		}
	}
}

func TestRate_names_what_is_wrong_and_rounds_nothing(t *testing.T) {
	const form = `a text such as "10/minute", "5 per 2 hours" or "20/90s"`
	const calendar = "a period of days or less; a quota counts months and years"
	const period = `a period such as "minute", "2 hours" or "90s"`
	const length = "a period from 1ms to 366 days, in whole microseconds"
	for text, want := range map[string]string{
		"10": form, "10/5 years": calendar, "10/week": period, "10/250 ms": period,
		"10/ms": period, "10/1.0000001s": period, "10/1.000001ms": length, "10/0.999ms": length,
		"10/366.000001d": length, "10/999999999999999999999s": length,
		"1000000000001/s": "units from 1 to 10^12",
	} {
		rule, err := Rate(text).Fixed("api")
		var wrong *InvalidArgument
		if rule != nil || !errors.As(err, &wrong) || err.Error() != "invalid rate: expected "+want {
			t.Errorf("%s: %v, %v", text, rule, err)
		}
	}
	for text, want := range map[string]time.Duration{
		"1/0.000001h": 3600 * time.Microsecond, "1/1.000001s": time.Second + time.Microsecond,
		"1/365.999999d": 366*24*time.Hour - 86_400*time.Microsecond,
	} {
		if _, period, err := Rate(text).Parse(); period != want || err != nil {
			t.Errorf("%s: %v, %v", text, period, err)
		}
	}
}
