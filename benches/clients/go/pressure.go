package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

// pressureJob is a job of `make bench-clients ONLY=pressure`; python/pressure.py describes jobs and
// replies.
type pressureJob struct {
	Name string `json:"name"`
	Rule struct {
		Kind    string `json:"kind"`
		Limit   int64  `json:"limit"`
		Rate    int64  `json:"rate"`
		PeriodS int64  `json:"period_s"`
	} `json:"rule"`
	Keys      int64   `json:"keys"`
	Calls     int64   `json:"calls"`
	Callers   int     `json:"callers"`
	Seconds   float64 `json:"seconds"`
	Rate      float64 `json:"rate"`
	Burst     int64   `json:"burst"`
	PeekEvery int64   `json:"peek_every"`
}

// timedCalls has the calls of a job, by their outcome: the beginning and the duration of each, in
// microseconds.
type timedCalls struct {
	mutex sync.Mutex
	calls map[string][]int64
}

func (j *pressureJob) rule() (*throttle.Rule, error) {
	period := time.Duration(j.Rule.PeriodS) * time.Second
	if j.Rule.Kind == "fixed" {
		return throttle.Fixed("bench", j.Rule.Limit, period)
	}
	return throttle.GCRA("bench", j.Rule.Limit, j.Rule.Rate, period)
}

// run makes the calls of a job.
func (j *pressureJob) run(limiter *throttle.Limiter) (map[string]any, error) {
	rule, err := j.rule()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	all := timedCalls{calls: map[string][]int64{}}
	call := func(number int64) {
		isPeek := j.PeekEvery > 0 && number%j.PeekEvery == 0
		start := time.Since(began)
		item := rule.Of(fmt.Sprintf("%s-%d", j.Name, number%j.Keys))
		var outcome string
		if isPeek {
			d, err := limiter.Peek(context.Background(), item)
			outcome = "peek " + outcomeOf(d, err)
		} else {
			outcome = outcomeOf(limiter.Check(context.Background(), item))
		}
		took := time.Since(began) - start
		all.mutex.Lock()
		defer all.mutex.Unlock()
		all.calls[outcome] = append(all.calls[outcome], start.Microseconds(), took.Microseconds())
	}
	var running sync.WaitGroup
	if j.Rate > 0 {
		for number := range j.Calls {
			due := time.Duration(float64(number-j.Burst) / j.Rate * float64(time.Second))
			time.Sleep(due - time.Since(began))
			running.Go(func() { call(number) })
		}
	} else {
		var next atomic.Int64
		seconds := time.Duration(j.Seconds * float64(time.Second))
		for range j.Callers {
			running.Go(func() {
				for seconds == 0 || time.Since(began) < seconds {
					number := next.Add(1) - 1
					if number >= j.Calls {
						return
					}
					call(number)
				}
			})
		}
	}
	running.Wait()
	return map[string]any{"began_ms": float64(began.UnixMicro()) / 1000, "calls": all.calls}, nil
}

func outcomeOf(d throttle.Decision, err error) string {
	if err != nil {
		return "raised " + err.Error()
	}
	verdict := "denied"
	if d.Allowed {
		verdict = "allowed"
	}
	outcome := fmt.Sprintf("%s %v", verdict, d.Source)
	if d.Reason != "" {
		outcome += " " + string(d.Reason)
	}
	return outcome
}

// pressure runs jobs until the input ends, and replies to each. The limiter begins with the first
// job.
func pressure(address string) error {
	rdb := redis.NewClient(&redis.Options{Addr: address})
	defer rdb.Close()
	var limiter *throttle.Limiter
	output := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var j pressureJob
		err := json.Unmarshal(lines.Bytes(), &j)
		if err == nil && limiter == nil {
			limiter, err = throttle.New(goredis.Adapt(rdb))
		}
		if err != nil {
			return err
		}
		reply, err := j.run(limiter)
		if err == nil {
			err = output.Encode(reply)
		}
		if err != nil {
			return err
		}
	}
	if limiter == nil {
		return nil
	}
	return limiter.Close(context.Background())
}
