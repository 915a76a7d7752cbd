// Program bench measures calls per second and their latency through go-redis, for `make
// bench-clients`.
//
// `bench SOCKET` prints its contestants as one line of JSON, then replies to each job on standard
// input with one line. The reply to a job of the scenario `local` or `forget` is the median of
// one call. All contestants use the same driver and the same loop; each job has its own client.
// `bench pressure HOST:PORT` runs the jobs of pressure.go instead.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

// patient is the timeout of all contestants. It is long, so that a slow call is not an error for
// only one of them.
const patient = 10 * time.Second

// denialsKept is the size of the cache in the scenario `flood`, medianCalls the number of calls of
// which the median is taken.
const (
	denialsKept = 1000
	medianCalls = 1000
)

// job is a line of the input. Its scenario selects the way of measuring.
type job struct {
	Scenario    string  `json:"scenario"`
	Contestant  string  `json:"contestant"`
	Key         string  `json:"key"`
	Seconds     float64 `json:"seconds"`
	InFlight    int     `json:"in_flight"`
	Limit       int64   `json:"limit"`
	PeriodS     int64   `json:"period_s"`
	DenialCache bool    `json:"denial_cache"`
	Prefetch    int64   `json:"prefetch"`
	// Calls is of `local`, Denials of `forget`.
	Calls   int `json:"calls"`
	Denials int `json:"denials"`
}

func (j *job) period() time.Duration { return time.Duration(j.PeriodS) * time.Second }

// reply is a line of the output.
type reply struct {
	Calls      int     `json:"calls"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	P50us      float64 `json:"p50_us"`
	P99us      float64 `json:"p99_us"`
	Allowed    int     `json:"allowed"`
	Denied     int     `json:"denied"`
	Errors     int     `json:"errors"`
}

// contestant makes the call of a job, and what ends its clients.
type contestant func(j *job, rdb *redis.Client) (call func() (bool, error), end func(), err error)

var contestants = map[string]contestant{
	"ours": ours, "redis_rate": redisRate, "httprate-redis": httprateRedis,
}

// ours is the limiter. Its end refunds unused permits.
func ours(j *job, rdb *redis.Client) (func() (bool, error), func(), error) {
	denials := 0
	if j.DenialCache {
		denials = denialsKept
	}
	limiter, err := throttle.New(goredis.Adapt(rdb), throttle.WithTimeout(patient),
		throttle.WithPrefetch(max(1, j.Prefetch)), throttle.WithDenialCache(denials, time.Second))
	if err != nil {
		return nil, nil, err
	}
	if _, err := limiter.Ready(context.Background()); err != nil {
		return nil, nil, err
	}
	rule, err := throttle.Fixed("bench", j.Limit, j.period())
	if err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	call := func() (bool, error) { return isAllowed(limiter.Check(ctx, rule.Of(j.Key))) }
	return call, func() { _ = limiter.Close(ctx) }, nil
}

// isAllowed reports whether the call was allowed. It returns an error if the server did not decide.
func isAllowed(d throttle.Decision, err error) (bool, error) {
	if err == nil && d.Degraded {
		err = fmt.Errorf("no reply: %v", d)
	}
	return d.Allowed, err
}

// callers runs the callers of a job, each as a goroutine.
func callers(j *job, call func() (bool, error)) reply {
	type seen struct {
		tookNs  []int64
		allowed int
		errors  int
	}
	all := make([]seen, j.InFlight)
	var running sync.WaitGroup
	began, beganCPU := time.Now(), cpu()
	ends := began.Add(time.Duration(j.Seconds * float64(time.Second)))
	for at := range all {
		running.Go(func() {
			var mine seen
			for start := began; start.Before(ends); {
				start = time.Now()
				allowed, err := call()
				end := time.Now()
				mine.tookNs = append(mine.tookNs, int64(end.Sub(start)))
				switch {
				case err != nil:
					mine.errors++
				case allowed:
					mine.allowed++
				}
				start = end
			}
			all[at] = mine
		})
	}
	running.Wait()
	result := reply{Seconds: time.Since(began).Seconds(), CPUSeconds: (cpu() - beganCPU).Seconds()}
	var tookNs []int64
	for _, one := range all {
		tookNs = append(tookNs, one.tookNs...)
		result.Allowed += one.allowed
		result.Errors += one.errors
	}
	slices.Sort(tookNs)
	result.Calls = len(tookNs)
	result.Denied = result.Calls - result.Allowed - result.Errors
	result.P50us, result.P99us = percentile(tookNs, 50), percentile(tookNs, 99)
	return result
}

// percentile returns a percentile of sorted nanoseconds, in microseconds.
func percentile(sortedNs []int64, percent int) float64 {
	if len(sortedNs) == 0 {
		return 0
	}
	return float64(sortedNs[min(len(sortedNs)*percent/100, len(sortedNs)-1)]) / 1000
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func load(j *job, socket string) (reply, error) {
	begin, ok := contestants[j.Contestant]
	if !ok {
		return reply{}, fmt.Errorf("there is no contestant %q", j.Contestant)
	}
	rdb := redis.NewClient(&redis.Options{
		Network: "unix", Addr: socket, ReadTimeout: patient, WriteTimeout: patient,
		// A connection for each caller. With the default of 10 per processor, callers of redis_rate
		// would wait for one.
		PoolSize: max(1, j.InFlight),
	})
	defer rdb.Close()
	call, end, err := begin(j, rdb)
	if err != nil {
		return reply{}, err
	}
	result := callers(j, call)
	end()
	return result, nil
}

// medianUs returns the median time of a call. The function gets the number of the call.
func medianUs(calls int, call func(number int) error) (float64, error) {
	tookNs := make([]int64, calls)
	for number := range calls {
		began := time.Now()
		if err := call(number); err != nil {
			return 0, err
		}
		tookNs[number] = int64(time.Since(began))
	}
	slices.Sort(tookNs)
	return percentile(tookNs, 50), nil
}

// local measures a sliding window in this process, after calls of its key. No server listens at the
// client's address.
func local(j *job, socket string) (result reply, err error) {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket + ".down"})
	defer rdb.Close()
	limiter, err := throttle.New(goredis.Adapt(rdb), throttle.WithOnError(throttle.Local))
	if err != nil {
		return result, err
	}
	ctx := context.Background()
	defer limiter.Close(ctx)
	window, err := throttle.Sliding("local", 2*int64(j.Calls), time.Hour)
	if err != nil {
		return result, err
	}
	call := func(int) error {
		_, err := limiter.Check(ctx, window.Of(j.Key))
		return err
	}
	if _, err = medianUs(j.Calls, call); err == nil {
		result.P50us, err = medianUs(medianCalls, call)
	}
	result.Errors = int(limiter.Counters().Denied)
	return result, err
}

// forget measures Forget and Refund together, with a number of denials in the cache.
func forget(j *job, socket string) (result reply, err error) {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer rdb.Close()
	limiter, err := throttle.New(goredis.Adapt(rdb), throttle.WithTimeout(patient),
		throttle.WithDenialCache(j.Denials, time.Hour))
	if err != nil {
		return result, err
	}
	ctx := context.Background()
	defer limiter.Close(ctx)
	rule, err := throttle.Fixed("forget", 1, time.Hour)
	if err != nil {
		return result, err
	}
	for number := range j.Denials {
		if _, err := limiter.Check(ctx, rule.Of(strconv.Itoa(number)).Cost(2)); err != nil {
			return result, err
		}
	}
	both, err := medianUs(medianCalls, func(number int) error {
		item := rule.Of(strconv.Itoa(number))
		if _, err := limiter.Forget(ctx, item); err != nil {
			return err
		}
		_, err := limiter.Refund(ctx, item)
		return err
	})
	result.P50us, result.Errors = both/2, int(limiter.Counters().Degraded)
	return result, err
}

// describe returns what the contestants are, with their versions.
func describe() map[string]string {
	versions := map[string]string{}
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, module := range built.Deps {
			versions[module.Path] = strings.TrimPrefix(module.Version, "v")
		}
	}
	driver := "go-redis " + versions["github.com/redis/go-redis/v9"]
	return map[string]string{
		"ours":       "clients/go, " + driver,
		"redis_rate": versions["github.com/go-redis/redis_rate/v10"] + ", " + driver,
		"httprate-redis": versions["github.com/go-chi/httprate-redis"] + ", httprate " +
			versions["github.com/go-chi/httprate"] + ", " + driver,
	}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "pressure" {
		if err := pressure(os.Args[2]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) != 2 {
		log.Fatal("usage: bench SOCKET")
	}
	output := json.NewEncoder(os.Stdout)
	greeting := map[string]any{"language": "go", "contestants": describe()}
	if err := output.Encode(greeting); err != nil {
		log.Fatal(err)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var j job
		if err := json.Unmarshal(lines.Bytes(), &j); err != nil {
			log.Fatal(err)
		}
		measure := load
		switch j.Scenario {
		case "local":
			measure = local
		case "forget":
			measure = forget
		}
		result, err := measure(&j, os.Args[1])
		if err == nil {
			err = output.Encode(result)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}
