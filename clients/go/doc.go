// Package throttle limits rates inside Redis and Valkey: each call of a program is one call of the
// server, which decides it atomically.
//
// A rule is a limit with a name. A limiter decides the calls of subjects, such as users or
// addresses, under rules:
//
//	limiter, err := throttle.New(goredis.Adapt(rdb))
//	api := throttle.Must(throttle.GCRA("api", 10, 10, time.Minute))
//	d, err := limiter.Check(ctx, api.Of("user:42"))
//	if err == nil && !d.Allowed {
//		// Come back after d.RetryAfter.
//	}
//
// Each call is sent once and ends at its deadline. If the server does not decide it, the rule's
// [OnError] decides: by default the call is allowed. An error of [Limiter.Check] is a mistake in
// the program or in the server's setup, the end of the caller's context, or [ErrClosed].
package throttle

// The files by the rooms of all clients, from the ground up:
//
//	rules    durations, errors, rule, rule_options, algorithms, rate, item, keys, options,
//	         decision, headers
//	wire     words, replies, backends, library
//	net      connection, dial, pool, line, node, breaker, clock, turn, cluster, tasks
//	calls    steps, several, prefetch, denials, fallback, local, events
//	holds    hold, lease, reservation, admission, ending
//	limiter  limiter
//	web      address, counting
