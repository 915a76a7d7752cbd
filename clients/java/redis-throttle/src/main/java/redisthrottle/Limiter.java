package redisthrottle;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;
import redisthrottle.Event.EventKind;

/**
 * Decides calls under rules. Any thread may call its methods, virtual threads included.
 *
 * <p>An invalid argument throws an {@link InvalidArgumentException}, a command that the server
 * rejects a {@link CommandRejectedException}, and a call after {@link #close} an {@link
 * IllegalStateException}. A blocking method whose thread is interrupted throws a {@link
 * CallInterruptedException}. The methods that end in {@code Async} begin the same call, and return
 * at once; their result fails with these exceptions, and cancelling it gives the call up.
 */
public final class Limiter implements AutoCloseable {
  private final Steps steps;
  private final Entry entry;

  Limiter(Steps steps) {
    this.steps = steps;
    this.entry = steps.entry();
  }

  /**
   * Returns a builder of a limiter whose connections an adapter of a driver opens.
   *
   * <pre>{@code
   * // With Lettuce: connector = LettuceConnector.of(redisClient, redisUri)
   * try (Limiter limiter = Limiter.builder(connector).timeout(Duration.ofSeconds(2)).build()) {
   *   Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
   *   System.out.println(limiter.check(api.of("user:42")).remaining()); // 9
   * }
   * }</pre>
   */
  public static LimiterBuilder builder(Connector connector) {
    return new LimiterBuilder(
        Checks.present("connector", connector), Clock::system, LimiterBuilder.defaultExecutor());
  }

  /**
   * Decides a call, and takes its cost if it is allowed. A denial is no exception.
   *
   * <pre>{@code
   * Rule api = Rule.gcra("api", 1, Rate.of("10/minute"));
   * System.out.println(limiter.check(api.of("user:42")).allowed()); // true
   * Decision second = limiter.check(api.of("user:42"));
   * System.out.println(second.allowed()); // false
   * System.out.println(second.retryAfter()); // PT6S
   * }</pre>
   */
  public Decision check(Item item) {
    return check(item, CallOptions.NONE);
  }

  /** Decides a call with options, as {@link #check(Item)} does. */
  public Decision check(Item item, CallOptions options) {
    return entry.sync(steps.check(item, options));
  }

  /**
   * Decides a call as {@link #check(Item)} does.
   *
   * <pre>{@code
   * Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
   * CompletionStage<Decision> decision = limiter.checkAsync(api.of("user:42"));
   * decision.thenAccept(d -> System.out.println(d.remaining())); // 9
   * }</pre>
   */
  public CompletionStage<Decision> checkAsync(Item item) {
    return checkAsync(item, CallOptions.NONE);
  }

  /** Decides a call with options, as {@link #check(Item)} does. */
  public CompletionStage<Decision> checkAsync(Item item, CallOptions options) {
    return entry.async(steps.check(item, options));
  }

  /**
   * Returns the decision that {@link #check(Item)} would make. It takes nothing.
   *
   * <pre>{@code
   * Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
   * System.out.println(limiter.peek(api.of("user:42").cost(0)).remaining()); // 10
   * }</pre>
   */
  public Decision peek(Item item) {
    return peek(item, CallOptions.NONE);
  }

  /** Looks at a key with options, as {@link #peek(Item)} does. */
  public Decision peek(Item item, CallOptions options) {
    return entry.sync(steps.peek(item, options));
  }

  /** Looks at a key as {@link #peek(Item)} does. */
  public CompletionStage<Decision> peekAsync(Item item) {
    return peekAsync(item, CallOptions.NONE);
  }

  /** Looks at a key with options, as {@link #peek(Item)} does. */
  public CompletionStage<Decision> peekAsync(Item item, CallOptions options) {
    return entry.async(steps.peek(item, options));
  }

  /**
   * Gives the item's cost back, up to the full allowance.
   *
   * <pre>{@code
   * Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
   * System.out.println(limiter.check(api.of("user:42").cost(5)).remaining()); // 5
   * System.out.println(limiter.refund(api.of("user:42").cost(3)).remaining()); // 8
   * }</pre>
   *
   * @throws UnavailableException without a final reply; the refund may have run, so do not repeat
   *     it
   */
  public Decision refund(Item item) {
    return refund(item, CallOptions.NONE);
  }

  /** Gives units back with options, as {@link #refund(Item)} does. */
  public Decision refund(Item item, CallOptions options) {
    return entry.sync(steps.settled(EventKind.REFUND, item, options));
  }

  /** Gives units back as {@link #refund(Item)} does. */
  public CompletionStage<Decision> refundAsync(Item item) {
    return refundAsync(item, CallOptions.NONE);
  }

  /** Gives units back with options, as {@link #refund(Item)} does. */
  public CompletionStage<Decision> refundAsync(Item item, CallOptions options) {
    return entry.async(steps.settled(EventKind.REFUND, item, options));
  }

  /**
   * Takes the item's cost even if fewer units are left, as a debt.
   *
   * <pre>{@code
   * Rule tokens = Rule.tokenBucket("tokens", 1000, Rate.of("1000/minute"));
   * limiter.charge(tokens.of("acme").cost(1500)); // a debt of 500 units
   * System.out.println(limiter.check(tokens.of("acme")).retryAfter()); // PT30.06S
   * }</pre>
   *
   * @throws UnavailableException without a final reply; the charge may have run, so do not repeat
   *     it
   */
  public Decision charge(Item item) {
    return charge(item, CallOptions.NONE);
  }

  /** Takes units with options, as {@link #charge(Item)} does. */
  public Decision charge(Item item, CallOptions options) {
    return entry.sync(steps.settled(EventKind.CHARGE, item, options));
  }

  /** Takes units as {@link #charge(Item)} does. */
  public CompletionStage<Decision> chargeAsync(Item item) {
    return chargeAsync(item, CallOptions.NONE);
  }

  /** Takes units with options, as {@link #charge(Item)} does. */
  public CompletionStage<Decision> chargeAsync(Item item, CallOptions options) {
    return entry.async(steps.settled(EventKind.CHARGE, item, options));
  }

  /**
   * Deletes the state of the item's subject under its rule.
   *
   * @return true if there was one
   * @throws UnavailableException without a final reply
   */
  public boolean forget(Item item) {
    return forget(item, CallOptions.NONE);
  }

  /** Deletes a state with options, as {@link #forget(Item)} does. */
  public boolean forget(Item item, CallOptions options) {
    return entry.sync(steps.forget(item, options));
  }

  /** Deletes a state as {@link #forget(Item)} does. */
  public CompletionStage<Boolean> forgetAsync(Item item) {
    return forgetAsync(item, CallOptions.NONE);
  }

  /** Deletes a state with options, as {@link #forget(Item)} does. */
  public CompletionStage<Boolean> forgetAsync(Item item, CallOptions options) {
    return entry.async(steps.forget(item, options));
  }

  /**
   * Denies all calls of the item's subject under its rule for a time, from 1 ms to 366 days, which
   * replaces the state. {@link #forget(Item)} ends it.
   *
   * @throws UnavailableException without a final reply
   */
  public void block(Item item, Duration duration) {
    block(item, duration, CallOptions.NONE);
  }

  /** Denies calls with options, as {@link #block(Item, Duration)} does. */
  public void block(Item item, Duration duration, CallOptions options) {
    entry.sync(steps.block(item, duration, options));
  }

  /** Denies calls as {@link #block(Item, Duration)} does. The result is true. */
  public CompletionStage<Boolean> blockAsync(Item item, Duration duration) {
    return blockAsync(item, duration, CallOptions.NONE);
  }

  /** Denies calls with options, as {@link #block(Item, Duration)} does. The result is true. */
  public CompletionStage<Boolean> blockAsync(Item item, Duration duration, CallOptions options) {
    return entry.async(steps.block(item, duration, options));
  }

  /**
   * Checks up to 16 items at once, and takes from all or from none. The decision has a row for
   * each. The caller ends the leases and reservations among them, which need an id; {@link #admit}
   * does that by itself.
   *
   * <pre>{@code
   * Rule user = Rule.gcra("user", 10, Rate.of("10/minute"));
   * Rule team = Rule.fixed("team", 1000, Duration.ofDays(1));
   * Decision d = limiter.checkAll(List.of(user.of("42"), team.of("acme")));
   * System.out.println(d.allowed()); // true
   * System.out.println(d.rows().get(1).remaining()); // 999
   * }</pre>
   */
  public Decision checkAll(List<Item> items) {
    return checkAll(items, CallOptions.NONE);
  }

  /** Checks several items with options, as {@link #checkAll(List)} does. */
  public Decision checkAll(List<Item> items, CallOptions options) {
    return entry.sync(steps.checkAll(items, options));
  }

  /** Checks several items as {@link #checkAll(List)} does. */
  public CompletionStage<Decision> checkAllAsync(List<Item> items) {
    return checkAllAsync(items, CallOptions.NONE);
  }

  /** Checks several items with options, as {@link #checkAll(List)} does. */
  public CompletionStage<Decision> checkAllAsync(List<Item> items, CallOptions options) {
    return entry.async(steps.checkAll(items, options));
  }

  /** Returns the decision that {@link #checkAll(List)} would make. It takes nothing. */
  public Decision peekAll(List<Item> items) {
    return peekAll(items, CallOptions.NONE);
  }

  /** Looks at several items with options, as {@link #peekAll(List)} does. */
  public Decision peekAll(List<Item> items, CallOptions options) {
    return entry.sync(steps.peekAll(items, options));
  }

  /** Looks at several items as {@link #peekAll(List)} does. */
  public CompletionStage<Decision> peekAllAsync(List<Item> items) {
    return peekAllAsync(items, CallOptions.NONE);
  }

  /** Looks at several items with options, as {@link #peekAll(List)} does. */
  public CompletionStage<Decision> peekAllAsync(List<Item> items, CallOptions options) {
    return entry.async(steps.peekAll(items, options));
  }

  /**
   * Checks one item after the other, for keys of different slots. If one denies, or the call fails
   * or is given up, it refunds what the earlier ones took. Until then other callers cannot use
   * those units. Leases, reservations and backoffs have no refunds, and are refused.
   */
  public Decision checkEach(List<Item> items) {
    return checkEach(items, CallOptions.NONE);
  }

  /** Checks one item after the other with options, as {@link #checkEach(List)} does. */
  public Decision checkEach(List<Item> items, CallOptions options) {
    return entry.sync(new Several(steps, options).checkEach(items));
  }

  /** Checks one item after the other, as {@link #checkEach(List)} does. */
  public CompletionStage<Decision> checkEachAsync(List<Item> items) {
    return checkEachAsync(items, CallOptions.NONE);
  }

  /** Checks one item after the other with options, as {@link #checkEach(List)} does. */
  public CompletionStage<Decision> checkEachAsync(List<Item> items, CallOptions options) {
    return entry.async(new Several(steps, options).checkEach(items));
  }

  /**
   * Checks until the call is allowed: after a denial it sleeps for {@code retryAfter} and checks
   * again. In a leaky bucket it then sleeps until the call's turn. If a sleep would end later than
   * {@code longest} after now, it takes nothing and returns a denial. A call that is decided
   * without the server, or never allowed, returns at once.
   */
  public Decision await(Item item, Duration longest) {
    return await(item, longest, CallOptions.NONE);
  }

  /** Checks until the call is allowed with options, as {@link #await(Item, Duration)} does. */
  public Decision await(Item item, Duration longest, CallOptions options) {
    return entry.sync(new Several(steps, options).await(item, longest));
  }

  /** Checks until the call is allowed, as {@link #await(Item, Duration)} does. */
  public CompletionStage<Decision> awaitAsync(Item item, Duration longest) {
    return awaitAsync(item, longest, CallOptions.NONE);
  }

  /** Checks until the call is allowed with options, as {@link #await(Item, Duration)} does. */
  public CompletionStage<Decision> awaitAsync(Item item, Duration longest, CallOptions options) {
    return entry.async(new Several(steps, options).await(item, longest));
  }

  /**
   * Takes one of the rule's permits. The lease renews itself until it is closed.
   *
   * <pre>{@code
   * Rule jobs = Rule.lease("jobs", 4, Duration.ofSeconds(30));
   * try (Lease lease = limiter.lease(jobs.of("acme"))) {
   *   System.out.println(lease.isHeld()); // true
   * }
   * }</pre>
   *
   * @throws DeniedException if the rule denies the permit
   */
  public Lease lease(Item item) {
    return lease(item, CallOptions.NONE);
  }

  /** Takes a permit with options, as {@link #lease(Item)} does. */
  public Lease lease(Item item, CallOptions options) {
    return entry.sync(steps.lease(item, options));
  }

  /** Takes a permit as {@link #lease(Item)} does. */
  public CompletionStage<Lease> leaseAsync(Item item) {
    return leaseAsync(item, CallOptions.NONE);
  }

  /** Takes a permit with options, as {@link #lease(Item)} does. */
  public CompletionStage<Lease> leaseAsync(Item item, CallOptions options) {
    return entry.async(steps.lease(item, options));
  }

  /**
   * Takes several items at once, leases and reservations among them, and returns what ends them
   * together. Neither prefetched permits nor cached denials decide.
   *
   * <pre>{@code
   * Rule calls = Rule.gcra("calls", 10, Rate.of("10/minute"));
   * Rule tokens = Rule.tokenBucket("tokens", 9000, Rate.of("9000/minute"));
   * List<Item> items = List.of(calls.of("acme"), tokens.of("acme").cost(500));
   * try (Admission admitted = limiter.admit(items)) {
   *   System.out.println(admitted.decision().rows().get(1).remaining()); // 8500
   * }
   * }</pre>
   *
   * @throws DeniedException if an item is denied; nothing was taken
   */
  public Admission admit(List<Item> items) {
    return admit(items, CallOptions.NONE);
  }

  /** Takes several items with options, as {@link #admit(List)} does. */
  public Admission admit(List<Item> items, CallOptions options) {
    return entry.sync(steps.admit(items, options));
  }

  /** Takes several items as {@link #admit(List)} does. */
  public CompletionStage<Admission> admitAsync(List<Item> items) {
    return admitAsync(items, CallOptions.NONE);
  }

  /** Takes several items with options, as {@link #admit(List)} does. */
  public CompletionStage<Admission> admitAsync(List<Item> items, CallOptions options) {
    return entry.async(steps.admit(items, options));
  }

  /**
   * Reserves units until the work's real cost is known: an admission of one item, which {@link
   * Item#reserve(long)} created.
   *
   * <pre>{@code
   * Rule tokens = Rule.quota("tokens", 100_000, CalendarUnit.MONTH);
   * try (Reservation reserved = limiter.reserve(tokens.of("acme").reserve(500))) {
   *   System.out.println(reserved.decision().remaining()); // 99500
   * }
   * }</pre>
   *
   * @throws DeniedException if the rule denies the units
   */
  public Reservation reserve(Item item) {
    return reserve(item, CallOptions.NONE);
  }

  /** Reserves units with options, as {@link #reserve(Item)} does. */
  public Reservation reserve(Item item, CallOptions options) {
    return entry.sync(steps.reserve(item, options));
  }

  /** Reserves units as {@link #reserve(Item)} does. */
  public CompletionStage<Reservation> reserveAsync(Item item) {
    return reserveAsync(item, CallOptions.NONE);
  }

  /** Reserves units with options, as {@link #reserve(Item)} does. */
  public CompletionStage<Reservation> reserveAsync(Item item, CallOptions options) {
    return entry.async(steps.reserve(item, options));
  }

  /**
   * Checks, at the start of a program, that the server replies, and returns the back end that does.
   * The first dial of a program loads the driver's classes, which may take seconds. So this waits
   * for up to 5 s, or the time-out if that is longer. A refused dial ends it at once.
   *
   * @throws UnavailableException without a final reply
   */
  public Backend ready() {
    return entry.sync(steps.ready());
  }

  /** Checks that the server replies, as {@link #ready} does. */
  public CompletionStage<Backend> readyAsync() {
    return entry.async(steps.ready());
  }

  /**
   * Gives back what an allowed check took, such as for a response that does not count. A prefetched
   * permit and units of this process return at once; units of the server with one refund in the
   * background, which is not repeated.
   *
   * @param taken the decision of the item; of a call with several, its row
   */
  public void giveBack(Item item, Decision taken) {
    giveBack(item, taken, CallOptions.NONE);
  }

  /** Gives back with the options of the check, as {@link #giveBack(Item, Decision)} does. */
  public void giveBack(Item item, Decision taken, CallOptions options) {
    steps.giveBack(item, taken, options);
  }

  /**
   * Throws if the rule cannot have its {@link OnError}: that of the limiter may be {@link
   * OnError#LOCAL}, which not all rules can have. A middleware calls this when it is built, so that
   * such a rule is not found at the first call.
   *
   * @throws InvalidArgumentException for such a rule
   */
  public void assertDecides(Rule rule) {
    Definition given = Checks.present("rule", rule).definition;
    given.checkLocal(steps.fallback.onErrorOf(given));
  }

  /**
   * Adds a hook to that of {@link LimiterBuilder#onDecision}. It gets the same events, after the
   * earlier hooks.
   */
  public void onDecision(Consumer<Event> hook) {
    steps.events.addHook(Checks.present("hook", hook));
  }

  /** Returns the counts since the limiter was created. */
  public Counters counters() {
    return steps.events.counters();
  }

  /** Returns the number of nodes whose circuit breaker is open: calls to them end at once. */
  public int openBreakers() {
    return steps.openBreakers();
  }

  /**
   * Refunds the prefetched permits that were not spent, ends the leases and admissions that are
   * held, and closes the limiter's connections, never the application's client. Calls in line throw
   * an {@link IllegalStateException}; calls that were sent get their replies, for at most the
   * time-out. Afterwards the limiter has no timer, and no thread but that of a hook which still
   * runs. A second call waits for the first. If the thread is interrupted, the end goes on and the
   * flag stays set.
   */
  @Override
  public void close() {
    entry.awaitEnd(steps.closing.close());
  }

  /** Closes the limiter as {@link #close} does. */
  public CompletionStage<Void> closeAsync() {
    return entry.outside(steps.closing.close());
  }
}
