package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A limit with a name. It does not change: each method that sets an option returns another rule. An
 * invalid argument throws an {@link InvalidArgumentException}.
 */
public sealed class Rule permits FixedRule, SlidingLogRule, QuotaRule, PolicyRule {
  final Definition definition;

  Rule(Definition definition) {
    this.definition = definition;
  }

  /**
   * Returns a rule that allows {@code burst} units at once, then {@code rate} units per period. The
   * server keeps one timestamp per key. It is the default choice.
   *
   * <pre>{@code
   * Rule api = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));
   * System.out.println(limiter.check(api.of("user:42")).remaining()); // 9
   * }</pre>
   */
  public static Rule gcra(String name, long burst, long rate, Duration period) {
    return new Rule(RuleForms.bucket(Kind.GCRA, "burst", name, burst, rate, period));
  }

  /** Returns the rule of {@link #gcra(String, long, long, Duration)} with a rate. */
  public static Rule gcra(String name, long burst, Rate rate) {
    return gcra(name, burst, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a bucket that starts full and gains {@code rate} units per period, for limits that
   * change at run time.
   *
   * <pre>{@code
   * Rule tokens = Rule.tokenBucket("tokens", 9000, 9000, Duration.ofMinutes(1));
   * System.out.println(limiter.check(tokens.of("acme").cost(500)).remaining()); // 8500
   * }</pre>
   */
  public static Rule tokenBucket(String name, long capacity, long rate, Duration period) {
    return new Rule(RuleForms.bucket(Kind.TOKEN_BUCKET, "capacity", name, capacity, rate, period));
  }

  /** Returns the rule of {@link #tokenBucket(String, long, long, Duration)} with a rate. */
  public static Rule tokenBucket(String name, long capacity, Rate rate) {
    return tokenBucket(name, capacity, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a queue that drains at {@code rate} units per period. An allowed call has a {@link
   * Decision#retryAfter}: the time to wait before it acts. The capacity is the queue's length.
   *
   * <pre>{@code
   * Rule hooks = Rule.leakyBucket("hooks", 50, 10, Duration.ofSeconds(1));
   * System.out.println(limiter.check(hooks.of("shop.example")).retryAfter()); // PT0S
   * System.out.println(limiter.check(hooks.of("shop.example")).retryAfter()); // PT0.1S
   * }</pre>
   */
  public static Rule leakyBucket(String name, long capacity, long rate, Duration period) {
    return new Rule(RuleForms.bucket(Kind.LEAKY_BUCKET, "capacity", name, capacity, rate, period));
  }

  /** Returns the rule of {@link #leakyBucket(String, long, long, Duration)} with a rate. */
  public static Rule leakyBucket(String name, long capacity, Rate rate) {
    return leakyBucket(name, capacity, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a counter per window. A window opens at the first allowed call, or with {@link
   * FixedRule#aligned} at multiples of its length since 1970.
   *
   * <pre>{@code
   * Rule exports = Rule.fixed("exports", 5, Duration.ofHours(1));
   * System.out.println(limiter.check(exports.of("user:42")).resetAfter()); // PT1H
   * }</pre>
   */
  public static FixedRule fixed(String name, long limit, Duration window) {
    return new FixedRule(RuleForms.window(Kind.FIXED, name, limit, window));
  }

  /**
   * Returns the rule of {@link #fixed(String, long, Duration)}: the rate's units in each period.
   */
  public static FixedRule fixed(String name, Rate rate) {
    return fixed(name, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a sliding window: it counts the current window and a decreasing part of the one before.
   *
   * <pre>{@code
   * Rule posts = Rule.sliding("posts", 100, Duration.ofHours(1));
   * System.out.println(limiter.check(posts.of("user:42")).remaining()); // 99
   * }</pre>
   */
  public static Rule sliding(String name, long limit, Duration window) {
    return new Rule(RuleForms.window(Kind.SLIDING, name, limit, window));
  }

  /**
   * Returns the rule of {@link #sliding(String, long, Duration)}: the rate's units in each period.
   */
  public static Rule sliding(String name, Rate rate) {
    return sliding(name, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a rule that never allows more than {@code limit} units in any window. The server stores
   * the instants of the calls; see {@link SlidingLogRule#slots} for large limits.
   *
   * <pre>{@code
   * Rule codes = Rule.slidingLog("codes", 3, Duration.ofMinutes(10));
   * System.out.println(limiter.check(codes.of("+49301234567")).remaining()); // 2
   * }</pre>
   */
  public static SlidingLogRule slidingLog(String name, long limit, Duration window) {
    return new SlidingLogRule(RuleForms.window(Kind.SLIDING_LOG, name, limit, window));
  }

  /**
   * Returns the rule of {@link #slidingLog(String, long, Duration)}: the rate's units in each
   * period.
   */
  public static SlidingLogRule slidingLog(String name, Rate rate) {
    return slidingLog(name, Checks.present("rate", rate).rate(), rate.period());
  }

  /**
   * Returns a rule for logins: some attempts without delay, then a delay that doubles with each
   * further attempt, from {@code base} to {@code longest}. It resets after {@code forget} without
   * an allowed attempt.
   *
   * <pre>{@code
   * Duration second = Duration.ofSeconds(1);
   * Duration minute = Duration.ofMinutes(1);
   * Rule login = Rule.backoff("login", 3, second, minute, Duration.ofHours(1));
   * System.out.println(limiter.check(login.of("ada")).remaining()); // 2
   * }</pre>
   */
  public static Rule backoff(
      String name, long attempts, Duration base, Duration longest, Duration forget) {
    return new Rule(RuleForms.backoff(name, attempts, base, longest, forget));
  }

  /**
   * Returns an allowance per calendar period, in UTC unless {@link QuotaRule#zone} is set.
   *
   * <pre>{@code
   * Rule tokens = Rule.quota("tokens", 100_000, CalendarUnit.MONTH);
   * System.out.println(limiter.check(tokens.of("acme").cost(500)).remaining()); // 99500
   * }</pre>
   */
  public static QuotaRule quota(String name, long limit, CalendarUnit unit) {
    return new QuotaRule(RuleForms.quota(name, limit, unit));
  }

  /**
   * Returns a rule that allows {@code limit} holders at once. A permit expires after {@code ttl}
   * unless it is renewed; {@link Limiter#lease} takes one.
   *
   * <pre>{@code
   * Rule jobs = Rule.lease("jobs", 4, Duration.ofSeconds(30));
   * try (Lease lease = limiter.lease(jobs.of("acme"))) {
   *   System.out.println(lease.decision().remaining()); // 3
   * }
   * }</pre>
   */
  public static Rule lease(String name, long limit, Duration ttl) {
    return new Rule(RuleForms.lease(name, limit, ttl));
  }

  /**
   * Returns a limit that the server stores under a name.
   *
   * <pre>{@code
   * // The server has the limit: RL.POLICY SET api GCRA 10 10 60
   * Rule api = Rule.policy("api");
   * System.out.println(limiter.check(api.of("user:42")).remaining()); // 9
   * }</pre>
   */
  public static PolicyRule policy(String name) {
    Checks.name("name", name);
    return new PolicyRule(Definition.of(Kind.POLICY, name, 0, null, List.of("USE", name)));
  }

  /** Returns the rule of the same class with other content. */
  Rule with(Definition other) {
    return new Rule(other);
  }

  private Rule with(Definition.Choices choices) {
    return with(definition.with(choices));
  }

  /** Returns the name, which is part of the keys and of the headers. */
  public final String name() {
    return definition.name;
  }

  /** Returns the algorithm. */
  public final Kind kind() {
    return definition.kind;
  }

  /** Returns the limit in units; 0 for a policy without a default. */
  public final long limit() {
    return definition.limit;
  }

  /** Returns the window or the time to refill from empty; null if the rule has neither. */
  public final @Nullable Duration window() {
    return definition.window;
  }

  /** Returns the responses of a middleware that count. */
  public final Count count() {
    return definition.choices.count();
  }

  /** Returns false for a lease and a backoff, whose calls all take one unit. */
  public final boolean takesCost() {
    return definition.takesCost();
  }

  /** Returns the rule with its own decision on calls without a final reply. */
  public final Rule onError(OnError onError) {
    definition.checkLocal(Checks.present("onError", onError));
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(onError, old.localShare(), old.prefetch(), old.count()));
  }

  /**
   * Returns the rule with a share of the limit, above 0 and at most 1, that this process allows by
   * itself under {@link OnError#LOCAL}. With ten processes use 0.1, or together they allow ten
   * times the limit. The default is 1.
   */
  public final Rule localShare(double share) {
    if (!(share > 0 && share <= 1)) {
      throw invalid("localShare", "a number above 0 and at most 1");
    }
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(old.onError(), share, old.prefetch(), old.count()));
  }

  /**
   * Returns the rule with a number of permits, from 1 to 10,000, that one call fetches and this
   * process spends; for hot keys. For each process a window may then allow up to this number of
   * units above the limit. Not for leaky buckets, backoffs, leases and policies. The default is 1.
   */
  public final Rule prefetch(int permits) {
    Checks.integer("prefetch", permits, 1, Checks.PREFETCH_MAX);
    if (permits > 1 && !definition.isPrefetchable()) {
      throw invalid("prefetch", "1 for " + name() + ", whose permits cannot be kept");
    }
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(old.onError(), old.localShare(), permits, old.count()));
  }

  /** Returns the rule with the responses of a middleware that count. Not for leases. */
  public final Rule count(Count count) {
    if (Checks.present("count", count) != Count.ALL && kind() == Kind.LEASE) {
      throw invalid("count", "Count.ALL for a lease, which ends with the response");
    }
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(old.onError(), old.localShare(), old.prefetch(), count));
  }

  /** Returns the item of a subject: the user, address or tenant that is limited. */
  public final Item of(String subject) {
    return new Item(this, Checks.present("subject", subject), 1, false, null, null, false);
  }

  @Override
  public final boolean equals(@Nullable Object other) {
    return other instanceof Rule rule && definition.equals(rule.definition);
  }

  @Override
  public final int hashCode() {
    return definition.hashCode();
  }

  /** Returns the name, and the rule as the server reads it. */
  @Override
  public final String toString() {
    return name() + ": " + definition.text;
  }
}
