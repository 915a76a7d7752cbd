package throttle

import (
	"fmt"
	"time"
)

const maxPrefetch = 10_000

// Option is an option of [New].
type Option interface{ applyLimiter(*options) }

type option func(*options)

func (o option) applyLimiter(options *options) { o(options) }

// options are those of a limiter.
type options struct {
	timeout         time.Duration
	hasTimeout      bool
	silence         time.Duration
	hasSilence      bool
	onError         OnError
	maxInFlight     int
	maxWaiting      int
	knownDenials    int
	breakerFailures int
	breakerPause    time.Duration
	denialCache     int
	denialCacheMax  time.Duration
	prefetch        int64
	backend         Backend
	prefix          string
	hashTag         string
	hmacSecret      string
	hasSecret       bool
	onDecision      func(Event)
	logsErrors      bool
}

func defaults() options {
	return options{
		timeout: time.Second, silence: 100 * time.Millisecond, onError: Allow,
		maxInFlight: 256, maxWaiting: 16_384, knownDenials: 10_000,
		breakerFailures: 5, breakerPause: time.Second, denialCacheMax: time.Second,
		prefetch: 1, backend: BackendAuto, prefix: "rl", logsErrors: true,
	}
}

// WithTimeout sets the most that a call takes, in all, from 1 ms to 1 h. The default is 1 s. The
// first dial is not part of it. An earlier deadline of the call's context replaces it.
func WithTimeout(d time.Duration) Option {
	return option(func(o *options) { o.timeout, o.hasTimeout = d, true })
}

// WithSilence sets the longest silence of a server, from 1 ms to the timeout. If it sends nothing
// for longer, calls in flight end, and OnError decides. It must be longer than a round trip and the
// server's longest stall. The default is 100 ms, or the timeout if only that is set.
func WithSilence(d time.Duration) Option {
	return option(func(o *options) { o.silence, o.hasSilence = d, true })
}

// WithMaxInFlight sets the maximum number of commands in flight to a node. Further calls stand in
// line. The default is 256.
func WithMaxInFlight(calls int) Option { return option(func(o *options) { o.maxInFlight = calls }) }

// WithMaxWaiting sets the maximum number of calls in line for a node. OnError decides further calls
// at once. The default is 16,384.
func WithMaxWaiting(calls int) Option { return option(func(o *options) { o.maxWaiting = calls }) }

// WithKnownDenials sets the maximum number of keys whose last denial is remembered. Under pressure,
// and for calls without a final reply, it decides before OnError. The default is 10,000.
func WithKnownDenials(keys int) Option { return option(func(o *options) { o.knownDenials = keys }) }

// WithLogErrors sets whether decisions without the server are logged by [log/slog], with their
// number, per reason at most once per second. The default is true.
func WithLogErrors(logs bool) Option { return option(func(o *options) { o.logsErrors = logs }) }

// WithBreaker sets the number of failures in a row after which the calls to a node pause, and the
// length of the pause, after which one call probes the node. The defaults are 5 and 1 s.
func WithBreaker(failures int, pause time.Duration) Option {
	return option(func(o *options) { o.breakerFailures, o.breakerPause = failures, pause })
}

// WithDenialCache keeps up to this number of denials in this process, each until its retry time but
// at most for longest; 0 for longest is 1 s. If another process deletes or refunds the key, a kept
// denial still applies until then. The default is no cache.
func WithDenialCache(denials int, longest time.Duration) Option {
	if longest == 0 {
		longest = time.Second
	}
	return option(func(o *options) { o.denialCache, o.denialCacheMax = denials, longest })
}

// WithBackend sets the code that decides on the server. The default is [BackendAuto].
func WithBackend(backend Backend) Option {
	return option(func(o *options) { o.backend = backend })
}

// WithPrefix sets the first part of all keys. If it is empty, keys begin with the rule. The default
// is rl.
func WithPrefix(prefix string) Option { return option(func(o *options) { o.prefix = prefix }) }

// WithHashTag puts the subject in braces, so that its keys under all rules are in one slot of a
// cluster.
func WithHashTag() Option { return option(func(o *options) { o.hashTag = "subject" }) }

// WithHMACSecret sets the secret, at least 16 bytes, with which subjects and tags are hashed. Keys
// then have no raw data.
func WithHMACSecret(secret string) Option {
	return option(func(o *options) { o.hmacSecret, o.hasSecret = secret, true })
}

// WithOnDecision sets a function that gets an event of each decision, charge, refund, end of an
// item of an admission, and rejection. It is called by the goroutine of the call and must be quick.
// If it panics, that is logged by [log/slog].
func WithOnDecision(hook func(Event)) Option {
	return option(func(o *options) { o.onDecision = hook })
}

// settle sets the silence that belongs to the timeout, if the program has not set one.
func (o *options) settle() {
	if o.hasTimeout && !o.hasSilence {
		o.silence = o.timeout
	}
}

// check validates the options.
func (o *options) check() error {
	const countMax = 1_000_000
	err := firstError(
		checkTime("timeout", o.timeout), checkTime("silence", o.silence),
		checkInt("maxInFlight", int64(o.maxInFlight), 1, countMax),
		checkInt("maxWaiting", int64(o.maxWaiting), 0, countMax),
		checkInt("knownDenials", int64(o.knownDenials), 0, countMax),
		checkInt("breakerFailures", int64(o.breakerFailures), 1, countMax),
		checkTime("breakerPause", o.breakerPause),
		checkInt("denialCache", int64(o.denialCache), 0, countMax),
		checkTime("denialCacheMax", o.denialCacheMax),
		checkInt("prefetch", o.prefetch, 1, maxPrefetch),
	)
	if o.silence > o.timeout {
		err = firstError(err, invalid("silence",
			fmt.Sprintf("at most the timeout of %v, not %v", o.timeout, o.silence)))
	}
	switch o.backend {
	case BackendAuto, BackendModule, BackendFunctions, BackendScript:
	default:
		err = firstError(err, invalid("backend", "auto, module, functions or script"))
	}
	if !o.onError.isKnown() {
		err = firstError(err, invalid("onError", "Allow, Deny or Local"))
	}
	if o.hasSecret && o.hmacSecret == "" {
		err = firstError(err, invalid("hmacSecret", "at least 16 bytes"))
	}
	return err
}

// checkTime returns an error unless a time of the limiter is from 1 ms to 1 h.
func checkTime(argument string, d time.Duration) error {
	if d < time.Millisecond || d > time.Hour {
		return invalid(argument, "a duration from 1ms to 1h")
	}
	return nil
}

// CallOption is an option of one call.
type CallOption func(*callOptions)

type callOptions struct {
	tag     *string
	id      *string
	partial bool
	// budget is shared with the calls that follow; nil for a whole timeout.
	budget *budget
}

// Tag sets the hash tag of all keys of a call, instead of the limiter's own. In a cluster the keys
// of a call must be in one slot.
func Tag(tag string) CallOption { return func(o *callOptions) { o.tag = &tag } }

// ID names the leases and reservations of a call. Each piece of work needs its own. The default is
// random, except in CheckAll and PeekAll, where a lease or a reservation needs one.
func ID(id string) CallOption { return func(o *callOptions) { o.id = &id } }

// Partial takes as many units as are left, at least 1 and at most the cost; see
// [Decision].Granted. It is for [Limiter.Check].
func Partial() CallOption { return func(o *callOptions) { o.partial = true } }
