package throttle

import (
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
	onError         OnError
	maxInFlight     int
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
}

func defaults() options {
	return options{
		timeout: 100 * time.Millisecond, onError: Allow, maxInFlight: 256,
		breakerFailures: 5, breakerPause: time.Second, denialCacheMax: time.Second,
		prefetch: 1, backend: BackendAuto, prefix: "rl",
	}
}

// WithTimeout sets the deadline of a whole call, its dial included, from 1 ms to 60 s. The default
// is 100 ms. An earlier deadline of the call's context replaces it.
func WithTimeout(d time.Duration) Option { return option(func(o *options) { o.timeout = d }) }

// WithMaxInFlight sets the maximum number of calls to a node at a time. OnError decides further
// calls at once. The default is 256.
func WithMaxInFlight(calls int) Option { return option(func(o *options) { o.maxInFlight = calls }) }

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

// check validates the options.
func (o *options) check() error {
	const ms = int64(time.Millisecond)
	err := firstError(
		checkInt("timeout", int64(o.timeout), ms, 60_000*ms),
		checkInt("maxInFlight", int64(o.maxInFlight), 1, 1_000_000),
		checkInt("breakerFailures", int64(o.breakerFailures), 1, 1_000_000),
		checkInt("breakerPause", int64(o.breakerPause), ms, 3_600_000*ms),
		checkInt("denialCache", int64(o.denialCache), 0, 10_000_000),
		checkInt("denialCacheMax", int64(o.denialCacheMax), ms, 3_600_000*ms),
		checkInt("prefetch", o.prefetch, 1, maxPrefetch),
	)
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

// CallOption is an option of one call.
type CallOption func(*callOptions)

type callOptions struct {
	tag     *string
	id      *string
	partial bool
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
