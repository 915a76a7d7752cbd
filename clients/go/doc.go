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
// Each call is sent once and ends at its deadline. If the server gives no answer, the rule's
// [OnError] decides: by default the call is allowed. An error of [Limiter.Check] is a mistake in
// the program or in the server's setup, the end of the caller's context, or [ErrClosed].
package throttle
