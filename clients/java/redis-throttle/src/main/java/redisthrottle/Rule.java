package redisthrottle;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A limit with a name. It does not change: each method that sets an option returns another rule. A
 * mistake is an {@link InvalidArgumentException}.
 */
public sealed interface Rule permits BaseRule {
  /**
   * Returns a rule that allows {@code burst} units at once, then {@code rate} units per period. The
   * server keeps one timestamp per key. It is the default choice.
   */
  static Rule gcra(String name, long burst, long rate, Duration period) {
    return RuleForms.bucket(Kind.GCRA, "GCRA", "burst", name, burst, rate, period);
  }

  /** Returns the rule of {@link #gcra(String, long, long, Duration)} with a rate. */
  static Rule gcra(String name, long burst, Rate rate) {
    return gcra(name, burst, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a bucket that starts full and gains {@code rate} units per period, for limits that
   * change at run time.
   */
  static Rule tokenBucket(String name, long capacity, long rate, Duration period) {
    return RuleForms.bucket(
        Kind.TOKEN_BUCKET, "TOKENBUCKET", "capacity", name, capacity, rate, period);
  }

  /** Returns the rule of {@link #tokenBucket(String, long, long, Duration)} with a rate. */
  static Rule tokenBucket(String name, long capacity, Rate rate) {
    return tokenBucket(name, capacity, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a queue that drains at {@code rate} units per period. An allowed call has a {@link
   * Decision#retryAfter}: the time to wait before it acts. The capacity is the queue's length.
   */
  static Rule leakyBucket(String name, long capacity, long rate, Duration period) {
    return RuleForms.bucket(
        Kind.LEAKY_BUCKET, "LEAKYBUCKET", "capacity", name, capacity, rate, period);
  }

  /** Returns the rule of {@link #leakyBucket(String, long, long, Duration)} with a rate. */
  static Rule leakyBucket(String name, long capacity, Rate rate) {
    return leakyBucket(name, capacity, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a counter per window. A window opens at the first allowed call, or with {@link
   * FixedRule#aligned} at multiples of its length since 1970.
   */
  static FixedRule fixed(String name, long limit, Duration window) {
    return new FixedRule(RuleForms.window(Kind.FIXED, "FIXED", name, limit, window));
  }

  /**
   * Returns the rule of {@link #fixed(String, long, Duration)}: the rate's units in each period.
   */
  static FixedRule fixed(String name, Rate rate) {
    return fixed(name, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a sliding window: it counts the current window and a decreasing part of the one before.
   */
  static Rule sliding(String name, long limit, Duration window) {
    return new PlainRule(RuleForms.window(Kind.SLIDING, "SLIDING", name, limit, window));
  }

  /**
   * Returns the rule of {@link #sliding(String, long, Duration)}: the rate's units in each period.
   */
  static Rule sliding(String name, Rate rate) {
    return sliding(name, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a rule that never allows more than {@code limit} units in any window. The server stores
   * the instants of the calls; see {@link SlidingLogRule#slots} for large limits.
   */
  static SlidingLogRule slidingLog(String name, long limit, Duration window) {
    return new SlidingLogRule(
        RuleForms.window(Kind.SLIDING_LOG, "SLIDINGLOG", name, limit, window));
  }

  /**
   * Returns the rule of {@link #slidingLog(String, long, Duration)}: the rate's units in each
   * period.
   */
  static SlidingLogRule slidingLog(String name, Rate rate) {
    return slidingLog(name, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a rule for logins: some attempts without delay, then a delay that doubles with each
   * further attempt, from {@code base} to {@code longest}. It resets after {@code forget} without
   * an allowed attempt.
   */
  static Rule backoff(
      String name, long attempts, Duration base, Duration longest, Duration forget) {
    return RuleForms.backoff(name, attempts, base, longest, forget);
  }

  /** Returns an allowance per calendar period, in UTC unless {@link QuotaRule#zone} is set. */
  static QuotaRule quota(String name, long limit, CalendarUnit unit) {
    return RuleForms.quota(name, limit, unit);
  }

  /**
   * Returns a rule that allows {@code limit} holders at once. A permit expires after {@code ttl}
   * unless it is renewed; {@link Limiter#lease} takes one.
   */
  static Rule lease(String name, long limit, Duration ttl) {
    return RuleForms.lease(name, limit, ttl);
  }

  /** Returns a limit that the server stores under a name. */
  static PolicyRule policy(String name) {
    Checks.name("name", name);
    return new PolicyRule(Definition.of(Kind.POLICY, name, 0, null, List.of("USE", name)));
  }

  /** Returns the name, which is part of the keys and of the headers. */
  String name();

  /** Returns the algorithm. */
  Kind kind();

  /** Returns the limit in units; 0 for a policy without a default. */
  long limit();

  /** Returns the window or the time to refill from empty; null if the rule has neither. */
  @Nullable Duration window();

  /** Returns the responses of a middleware that count. */
  Count count();

  /** Returns false for a lease and a backoff, whose calls all take one unit. */
  boolean takesCost();

  /** Returns the rule with its own decision on calls without an answer. */
  Rule onError(OnError onError);

  /**
   * Returns the rule with a share of the limit, above 0 and at most 1, that this process allows by
   * itself under {@link OnError#LOCAL}. With ten processes use 0.1, or together they allow ten
   * times the limit. The default is 1.
   */
  Rule localShare(double share);

  /**
   * Returns the rule with a number of permits, from 1 to 10,000, that one call fetches and this
   * process spends; for hot keys. For each process a window may then allow up to this number of
   * units above the limit. Not for leaky buckets, backoffs, leases and policies. The default is 1.
   */
  Rule prefetch(int permits);

  /** Returns the rule with the responses of a middleware that count. Not for leases. */
  Rule count(Count count);

  /** Returns the item of a subject: the user, address or tenant that is limited. */
  Item of(String subject);
}
