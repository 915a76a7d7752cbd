package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Items that {@link Limiter#admit} took. While the admission lasts, its leases and reservations
 * renew themselves. End it with try-with-resources.
 */
public final class Admission extends Guard implements AutoCloseable {
  /**
   * The part of an admission under one of its items.
   *
   * @param hold null for a plain rule
   * @param end ends the part, with the units that the work took; null if they were not settled
   */
  record Part(
      Definition rule,
      String subject,
      @Nullable Hold hold,
      Function<@Nullable Long, CompletableFuture<Boolean>> end) {}

  private final Decision decision;
  private final String id;
  private final List<Part> parts;
  private final Map<Part, Long> settled = new ConcurrentHashMap<>();

  Admission(Owner owner, Decision decision, String id, List<Part> parts) {
    super(owner);
    this.decision = decision;
    this.id = id;
    this.parts = parts;
    for (Part part : parts) {
      if (part.hold != null) {
        part.hold.renewFor(this);
      }
    }
  }

  /** Returns the decision, with a row for each item. */
  public Decision decision() {
    return decision;
  }

  /** Returns the id of the leases and reservations. */
  public String id() {
    return id;
  }

  /**
   * Returns true if the admission lasts and no lease and no reservation is lost, by the clock of
   * this process. If {@link OnError} allowed it, true until its end.
   */
  public boolean isHeld() {
    return !hasEnded() && parts.stream().allMatch(part -> part.hold == null || part.hold.isHeld());
  }

  /**
   * Notes the units that the work took under a rule. Sends nothing; the last call wins. At the end
   * a reservation is committed with them, and a plain rule is charged or refunded the difference.
   *
   * <pre>{@code
   * Rule tokens = Rule.tokenBucket("tokens", 9000, Rate.of("9000/minute"));
   * try (Admission admitted = limiter.admit(List.of(tokens.of("acme").cost(500)))) {
   *   admitted.settle(tokens, 420);
   * }
   * System.out.println(limiter.peek(tokens.of("acme").cost(0)).remaining()); // 8580
   * }</pre>
   *
   * @param actual 0 to 10^12 units
   * @throws InvalidArgumentException for a rule that is not in the admission or in two of its
   *     items, for a lease or a backoff, and after the end
   */
  public void settle(Rule rule, long actual) {
    settle(Checks.present("rule", rule).definition, null, actual);
  }

  /** Notes the units that the work took under an item, as {@link #settle(Rule, long)} does. */
  public void settle(Item item, long actual) {
    Checks.present("item", item);
    settle(item.rule.definition, item.subject, actual);
  }

  private void settle(Definition rule, @Nullable String subject, long actual) {
    Part part = partOf(rule, subject);
    Checks.integer("actual", actual, 0, Checks.UNITS_MAX);
    settled.put(part, actual);
  }

  private Part partOf(Definition rule, @Nullable String subject) {
    if (hasEnded()) {
      throw refused(rule, "a rule of an admission that has not ended");
    }
    List<Part> found =
        parts.stream()
            .filter(part -> part.rule.isSame(rule))
            .filter(part -> subject == null || subject.equals(part.subject))
            .toList();
    if (found.isEmpty()) {
      throw refused(rule, "a rule of the admission");
    }
    if (found.size() > 1) {
      throw refused(rule, "an item, because two items have the rule");
    }
    if (rule.kind == Kind.LEASE || rule.kind == Kind.BACKOFF) {
      throw refused(rule, "a rule that takes a cost");
    }
    return found.get(0);
  }

  private static InvalidArgumentException refused(Definition rule, String expected) {
    return invalid("rule", expected + "; " + rule.name + " is not");
  }

  /**
   * Ends the admission: releases leases, commits reservations that were settled and cancels the
   * others, and charges or refunds plain rules that were settled. It returns after the first
   * attempt of each and never throws: what failed is counted in {@link Counters#unsettled}.
   * Releases, commits and cancellations without a final reply are repeated until the ttl is over or
   * the limiter is closed. A second call waits for the first. If the thread is interrupted, the
   * ends go on and the flag stays set.
   */
  @Override
  public void close() {
    owner.entry().awaitEnd(end());
  }

  /** Ends the admission as {@link #close} does. */
  public CompletionStage<Void> finishAsync() {
    return owner.entry().outside(end());
  }

  @Override
  void endRenewals() {
    for (Part part : parts) {
      if (part.hold != null) {
        part.hold.stopRenewing();
      }
    }
  }

  @Override
  CompletableFuture<?> sendEnds() {
    for (Part part : parts) {
      if (part.hold != null) {
        part.hold.end();
      }
    }
    CompletableFuture<?>[] all =
        parts.stream()
            .map(part -> Errors.begun(() -> part.end.apply(settled.get(part))))
            .map(CompletionStage::toCompletableFuture)
            .toArray(CompletableFuture<?>[]::new);
    return CompletableFuture.allOf(all);
  }
}
