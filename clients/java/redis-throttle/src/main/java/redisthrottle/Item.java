package redisthrottle;

import static redisthrottle.Checks.UNITS_MAX;
import static redisthrottle.Checks.invalid;

import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A rule with a subject, and what a call takes: one unit, unless it has a cost or a reservation.
 * {@link Rule#of} makes it. It does not change: each method returns another item.
 */
public final class Item {
  private static final Duration RESERVATION_TTL = Duration.ofSeconds(30);

  final Rule rule;
  final String subject;
  final long cost;
  final boolean hasCost;
  final @Nullable String leave;

  /** The ttl of a reservation, otherwise null. */
  final @Nullable Duration ttl;

  final boolean isPartial;

  Item(
      Rule rule,
      String subject,
      long cost,
      boolean hasCost,
      @Nullable String leave,
      @Nullable Duration ttl,
      boolean isPartial) {
    this.rule = rule;
    this.subject = subject;
    this.cost = cost;
    this.hasCost = hasCost;
    this.leave = leave;
    this.ttl = ttl;
    this.isPartial = isPartial;
  }

  /** Returns the item's rule. */
  public Rule rule() {
    return rule;
  }

  /** Returns the item's subject. */
  public String subject() {
    return subject;
  }

  /**
   * Returns the item with another cost, from 0 to 10^12 units. Leases and backoffs have none, and a
   * reservation has its own.
   */
  public Item cost(long units) {
    if (ttl != null) {
      throw invalid("cost", "no cost next to the reservation of " + rule.name());
    }
    Checks.integer("cost", units, 0, UNITS_MAX);
    return new Item(rule, subject, units, true, leave, null, isPartial);
  }

  /**
   * Returns the item as one that leaves units to other calls: it is denied if fewer would remain.
   * Not for backoffs.
   */
  public Item leave(long units) {
    Checks.integer("leave", units, 0, UNITS_MAX);
    return new Item(rule, subject, cost, hasCost, Long.toString(units), ttl, isPartial);
  }

  /**
   * Returns the item as one that leaves a share of the limit, from 0 to 100 per cent, rounded down
   * to units.
   */
  public Item leavePercent(int share) {
    Checks.integer("leave", share, 0, 100);
    return new Item(rule, subject, cost, hasCost, share + "%", ttl, isPartial);
  }

  /**
   * Returns the item as one that takes the units that are left if they are fewer than its cost; for
   * {@link Limiter#check} alone.
   */
  public Item partial() {
    return new Item(rule, subject, cost, hasCost, leave, ttl, true);
  }

  /** Returns the item as a reservation of 30 seconds; see {@link #reserve(long, Duration)}. */
  public Item reserve(long units) {
    return reserve(units, RESERVATION_TTL);
  }

  /**
   * Returns the item as a reservation: its units count as used until it is committed or cancelled,
   * or its ttl is over. It is for fixed windows, quotas and policies, on servers with the module.
   */
  public Item reserve(long units, Duration ttl) {
    Kind kind = rule.kind();
    if (kind != Kind.FIXED && kind != Kind.QUOTA && kind != Kind.POLICY) {
      throw invalid("rule", "fixed, quota or a policy; " + rule.name() + " is not");
    }
    if (hasCost) {
      throw invalid("reserve", "no reservation next to the cost of " + rule.name());
    }
    Checks.integer("reserve", units, 0, UNITS_MAX);
    return new Item(rule, subject, units, false, leave, Checks.duration("ttl", ttl), isPartial);
  }

  @Override
  public boolean equals(@Nullable Object other) {
    return other instanceof Item item
        && rule.equals(item.rule)
        && subject.equals(item.subject)
        && cost == item.cost
        && isPartial == item.isPartial
        && Objects.equals(leave, item.leave)
        && Objects.equals(ttl, item.ttl);
  }

  @Override
  public int hashCode() {
    return Objects.hash(rule, subject, cost, isPartial, leave, ttl);
  }

  /** Returns the rule and the cost. It has no subject. */
  @Override
  public String toString() {
    return rule.name() + (ttl == null ? " cost " : " reserve ") + cost;
  }
}
