package throttle

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestLocal_denials_end_at_their_retry_time(t *testing.T) {
	rules := []*Rule{
		Must(GCRA("r", 5, 10, time.Second)), Must(TokenBucket("r", 5, 3, time.Second)),
		Must(Fixed("r", 5, time.Second)), Must(Fixed("r", 5, time.Second, Aligned())),
		Must(Sliding("r", 5, time.Second)), Must(SlidingLog("r", 5, time.Second)),
		Must(SlidingLog("r", 2000, time.Second)), Must(LeakyBucket("r", 5, 7, time.Second)),
		Must(GCRA("r", 10, 10, time.Second, WithLocalShare(0.5))),
	}
	for _, rule := range rules {
		t.Run(rule.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLocalLimiter()
				unavailable := &Unavailable{Reason: ReasonTimeout}
				cost := max(1, rule.limit/5)
				decide := func() Decision {
					items := []*keyedItem{{rule: rule, key: "k", cost: cost}}
					return l.decide(items, unavailable, false)[0]
				}
				var taken int64
				for step := range 200 {
					d := decide()
					if d.Allowed {
						taken += cost
						continue
					}
					if step == 0 || d.RetryAfter < time.Millisecond || d.Never {
						t.Fatal(d)
					}
					if d.RetryAfter > time.Millisecond {
						time.Sleep(d.RetryAfter - time.Millisecond)
						if early := decide(); early.Allowed {
							t.Fatalf("%v, but allowed 1 ms earlier", d)
						}
						time.Sleep(time.Millisecond)
					} else {
						time.Sleep(d.RetryAfter)
					}
					if again := decide(); !again.Allowed {
						t.Fatalf("%v, and then %v", d, again)
					}
				}
				if taken == 0 {
					t.Error("no call was allowed")
				}
			})
		})
	}
}

func TestLocal_limiter_drops_idle_keys_first(t *testing.T) {
	l := newLocalLimiter()
	rule := Must(Fixed("day", 2, time.Hour))
	decide := func(key string, cost int64) Decision {
		return l.decide([]*keyedItem{{rule: rule, key: key, cost: cost}}, nil, false)[0]
	}
	decide("exhausted", 2)
	decide("idle", 1)
	for at := range subjectsMax {
		decide(fmt.Sprint(at), 1)
	}
	if d := decide("exhausted", 1); d.Allowed {
		t.Error("the exhausted key was dropped")
	}
	if d := decide("idle", 2); !d.Allowed || len(l.keys) > subjectsMax {
		t.Error("the idle key was kept")
	}
	for at := range subjectsMax {
		decide(fmt.Sprint("other ", at), 2)
	}
	if decide("admin", 1); !decide("admin", 1).Allowed || decide("admin", 1).Allowed {
		t.Error("exhausted keys left no room for another one")
	}
}
