// Package redisrate has the types and methods of github.com/go-redis/redis_rate/v10, over a limiter
// of redis-throttle. A program changes its import line, and a Ring to a client:
//
//	import redis_rate "redis-throttle.invalid/go/goredis/redisrate"
//
// A call is sent once. It ends after 1 s, or when the server has sent nothing for 100 ms, unless
// [NewLimiter] gets other times. Without a final reply it is an error, as in redis_rate, unless the
// key is known to be denied. The state is another one, under other keys: while a program of each
// runs, a key has twice its limit.
package redisrate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

// name is the name of all rules, and so the part of the keys before the subject.
const name = "rate"

// Limiter decides how often events may happen. Its methods may be called by several goroutines at
// once.
type Limiter struct {
	limiter *throttle.Limiter
	err     error
	// last is the rule of the last call: most programs have few limits.
	last *atomic.Pointer[builtRule]
}

// builtRule is a limit and the rule that was built from it.
type builtRule struct {
	limit Limit
	rule  *throttle.Rule
}

// NewLimiter returns a limiter that dials with the configuration of a client; see [goredis.Adapt].
// It takes the options of [throttle.New], but an OnError has no effect. All calls of a limiter with
// a client that cannot be used, such as a Ring, or with a wrong option, return the error.
func NewLimiter(rdb redis.UniversalClient, options ...throttle.Option) *Limiter {
	// Deny takes nothing in this process when there is no final reply.
	all := append(append([]throttle.Option{}, options...), throttle.WithOnError(throttle.Deny))
	limiter, err := throttle.New(goredis.Adapt(rdb), all...)
	return &Limiter{limiter: limiter, err: err, last: &atomic.Pointer[builtRule]{}}
}

// Allow is AllowN for one event.
func (l Limiter) Allow(ctx context.Context, key string, limit Limit) (*Result, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN decides whether n events may happen now: all of them or none. If n is 0, it takes nothing.
// The key is not empty, and n is from 0 to 10^12.
func (l Limiter) AllowN(
	ctx context.Context, key string, limit Limit, n int,
) (*Result, error) {
	if limit.deniesAll() {
		return l.deny(key, limit, n, n)
	}
	d, err := l.check(ctx, key, limit, n)
	if err != nil {
		return nil, err
	}
	return resultOf(d, limit, n), nil
}

// AllowAtMost decides how many of n events may happen now. If n is 0, it takes nothing, and denies
// if not one event may happen.
func (l Limiter) AllowAtMost(
	ctx context.Context, key string, limit Limit, n int,
) (*Result, error) {
	if limit.deniesAll() {
		// One event is fewer than n, and would do.
		return l.deny(key, limit, n, 1)
	}
	var opts []throttle.CallOption
	if n != 0 {
		opts = append(opts, throttle.Partial())
	}
	d, err := l.check(ctx, key, limit, n, opts...)
	if err != nil {
		return nil, err
	}
	result := resultOf(d, limit, n)
	if n == 0 && d.Remaining == 0 {
		result.RetryAfter = max(0, d.ResetAfter+above(limit, 1))
	}
	return result, nil
}

// Reset deletes the state of a key. The next call finds all of its limit.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	limiter, err := l.usable()
	if err != nil {
		return err
	}
	_, err = limiter.Forget(ctx, anyRule.Of(key))
	return err
}

// anyRule has the name of all rules, and so their keys.
var anyRule = throttle.Must(throttle.GCRA(name, 1, 1, time.Second))

// Close closes the connections of the limiter, but not the client. Later calls are errors.
func (l *Limiter) Close(ctx context.Context) error {
	limiter, err := l.usable()
	if err != nil {
		return err
	}
	return limiter.Close(ctx)
}

func (l *Limiter) usable() (*throttle.Limiter, error) {
	if l == nil || l.limiter == nil && l.err == nil {
		return nil, invalid("limiter", "a limiter made by NewLimiter")
	}
	return l.limiter, l.err
}

func invalid(argument, expected string) error {
	return &throttle.InvalidArgument{Argument: argument, Expected: expected}
}

// check decides a call. Without a final reply it returns the error, unless the key is known to be
// denied.
func (l *Limiter) check(
	ctx context.Context, key string, limit Limit, n int, opts ...throttle.CallOption,
) (throttle.Decision, error) {
	limiter, err := l.usable()
	if err != nil {
		return throttle.Decision{}, err
	}
	rule, err := l.ruleOf(limit)
	if err != nil {
		return throttle.Decision{}, err
	}
	d, err := limiter.Check(ctx, rule.Of(key).Cost(int64(n)), opts...)
	if err == nil && d.Source == throttle.SourceError {
		err = d.Err()
	}
	return d, err
}

// deny returns the denial of n events by a limit of 0, which the server does not take. RetryAfter
// is that of the awaited events.
func (l *Limiter) deny(key string, limit Limit, n, awaited int) (*Result, error) {
	if _, err := l.usable(); err != nil {
		return nil, err
	}
	if limit.Rate < 0 || limit.Burst < 0 {
		return nil, invalid("limit", "a rate and a burst from 0")
	}
	if _, err := throttle.GCRA(name, 1, 1, limit.Period); err != nil {
		return nil, err
	}
	if key == "" {
		return nil, invalid("subject", "a key that is not empty")
	}
	if n < 0 {
		return nil, invalid("cost", "0 to 10^12")
	}
	result := &Result{Limit: limit, RetryAfter: -1}
	if awaited > 0 {
		result.RetryAfter = above(limit, awaited)
	}
	return result, nil
}

// ruleOf returns the rule of a limit.
func (l *Limiter) ruleOf(limit Limit) (*throttle.Rule, error) {
	if last := l.last.Load(); last != nil && last.limit == limit {
		return last.rule, nil
	}
	rule, err := throttle.GCRA(name, int64(limit.Burst), int64(limit.Rate), limit.Period)
	if err == nil {
		l.last.Store(&builtRule{limit, rule})
	}
	return rule, err
}

func resultOf(d throttle.Decision, limit Limit, n int) *Result {
	result := &Result{
		Limit: limit, Allowed: int(d.Granted), Remaining: int(d.Remaining),
		RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter,
	}
	switch {
	case d.Allowed:
		result.RetryAfter = -1
	case d.Never:
		result.RetryAfter = d.ResetAfter + above(limit, n)
	}
	return result
}

// above returns the time in which the events above the burst are refilled; below 0 for fewer.
func above(limit Limit, n int) time.Duration {
	if limit.Rate == 0 {
		return throttle.Never
	}
	ns := float64(n-limit.Burst) * float64(limit.Period) / float64(limit.Rate)
	// The half leaves room for a sum. It is 146 years.
	return time.Duration(min(ns, float64(throttle.Never/2)))
}
