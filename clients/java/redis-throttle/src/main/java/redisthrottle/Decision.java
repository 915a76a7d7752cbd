package redisthrottle;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The result of a call.
 *
 * @param allowed true if the call may act
 * @param rule the rule that decided
 * @param limit the limit of the rule or policy, in units; 0 if {@link OnError} decided and it is
 *     unknown
 * @param remaining the units left, rounded down; it may be above 0 for a denied call with a cost
 *     above 1
 * @param granted the units taken; a partial call may get fewer than its cost
 * @param retryAfter of a denial the time until the same call is allowed, or {@link #NEVER}; of an
 *     allowed call 0, but in a leaky bucket the time to wait before acting
 * @param resetAfter the time until all units are back, if no further call takes any
 * @param wouldAllow {@code allowed} without the shadow mode of a policy
 * @param wouldRetryAfter {@code retryAfter} without the shadow mode of a policy
 * @param banned true if the key is blocked: a retry never helps, although the cost is within the
 *     limit, or the limit is 0
 * @param rows the decisions of the rules of a call with several, in order; otherwise empty
 * @param deciding the index of the row that decided
 * @param source the maker of the decision
 * @param error the reason that there was no answer, if {@link OnError} decided; otherwise null
 */
public record Decision(
    boolean allowed,
    Rule rule,
    long limit,
    long remaining,
    long granted,
    Duration retryAfter,
    Duration resetAfter,
    boolean wouldAllow,
    Duration wouldRetryAfter,
    boolean banned,
    List<Decision> rows,
    int deciding,
    Source source,
    @Nullable UnavailableException error) {
  static final long NEVER_MS = (1L << 53) - 1;

  /** The {@code retryAfter} of a call that is never allowed, 2^53 - 1 milliseconds. */
  public static final Duration NEVER = Duration.ofMillis(NEVER_MS);

  /** Returns true if a retry never helps: the cost is above the limit, or the key is banned. */
  public boolean never() {
    return retryAfter.equals(NEVER);
  }

  /** Returns true if {@link OnError} decided. */
  public boolean degraded() {
    return error != null;
  }

  /** Returns the reason that there was no answer; null unless degraded. */
  public @Nullable Reason reason() {
    return error == null ? null : error.reason();
  }

  /** Returns the fields {@code RateLimit-Policy}, {@code RateLimit} and {@code Retry-After}. */
  public Map<String, String> headers() {
    return headers(List.of(HeaderStyle.DRAFT_11), Instant.now());
  }

  /**
   * Returns the HTTP fields that report the decision. If {@link OnError} decided, only a denial has
   * one: {@code Retry-After}.
   *
   * @param styles the forms to write; if it is empty, only {@code Retry-After} is written
   * @param now the time for {@code X-RateLimit-Reset}
   */
  public Map<String, String> headers(List<HeaderStyle> styles, Instant now) {
    return new Headers(this).fields(Checks.present("styles", styles), Checks.present("now", now));
  }

  /**
   * Returns the body of the response to a denial: status 429; 413 if a retry never helps; 403 for a
   * ban; 503 if {@link OnError} decided.
   */
  public Problem problem() {
    return Problem.of(this);
  }

  /** Returns the decision in a form for logs. It has no subject. */
  @Override
  public String toString() {
    String verdict = "denied, again in " + retryAfter.toMillis() + " ms";
    if (allowed) {
      verdict = "allowed, " + remaining + " left";
    } else if (never()) {
      verdict = "denied, never";
    }
    String from = degraded() ? source.word() + ", " + reason() : source.word();
    return rule.name() + ": " + verdict + " (" + from + ")";
  }

  /** Returns a decision of one rule. A time below 0 means never. */
  static Decision of(
      Rule rule,
      boolean allowed,
      long limit,
      long remaining,
      long granted,
      long retryAfterMs,
      long resetAfterMs,
      Source source,
      @Nullable UnavailableException error) {
    Duration retry = millis(retryAfterMs);
    return new Decision(
        allowed,
        rule,
        limit,
        remaining,
        granted,
        retry,
        millis(resetAfterMs),
        allowed,
        retry,
        false,
        List.of(),
        0,
        source,
        error);
  }

  /** Returns a duration of a reply. Below 0 it means never. */
  static Duration millis(long ms) {
    if (ms == 0) {
      return Duration.ZERO;
    }
    return ms < 0 || ms > NEVER_MS ? NEVER : Duration.ofMillis(ms);
  }

  Decision withWould(boolean would, Duration after) {
    return new Decision(
        allowed,
        rule,
        limit,
        remaining,
        granted,
        retryAfter,
        resetAfter,
        would,
        after,
        banned,
        rows,
        deciding,
        source,
        error);
  }

  Decision withRows(List<Decision> others, int index) {
    return new Decision(
        allowed,
        rule,
        limit,
        remaining,
        granted,
        retryAfter,
        resetAfter,
        wouldAllow,
        wouldRetryAfter,
        banned,
        others,
        index,
        source,
        error);
  }

  Decision withBanned(boolean isBanned) {
    return new Decision(
        allowed,
        rule,
        limit,
        remaining,
        granted,
        retryAfter,
        resetAfter,
        wouldAllow,
        wouldRetryAfter,
        isBanned,
        rows,
        deciding,
        source,
        error);
  }

  Decision withRetryAfter(Duration after) {
    return new Decision(
        allowed,
        rule,
        limit,
        remaining,
        granted,
        after,
        resetAfter,
        wouldAllow,
        wouldRetryAfter,
        banned,
        rows,
        deciding,
        source,
        error);
  }

  Decision withError(@Nullable UnavailableException away) {
    return new Decision(
        allowed,
        rule,
        limit,
        remaining,
        granted,
        retryAfter,
        resetAfter,
        wouldAllow,
        wouldRetryAfter,
        banned,
        rows,
        deciding,
        source,
        away);
  }

  /** Returns the decision of a permit that was taken from a grant. */
  Decision permit(long units, long left, Duration reset, Source from) {
    return new Decision(
        allowed,
        rule,
        limit,
        left,
        units,
        retryAfter,
        reset,
        wouldAllow,
        wouldRetryAfter,
        banned,
        rows,
        deciding,
        from,
        error);
  }

  /** Returns a denial of this process. */
  Decision denied(Duration after) {
    return new Decision(
        false,
        rule,
        limit,
        0,
        0,
        after,
        resetAfter,
        false,
        after,
        banned,
        rows,
        deciding,
        Source.LOCAL,
        error);
  }

  /** Returns the decision as a denial whose turn comes too late. */
  Decision tooLate() {
    return new Decision(
        false,
        rule,
        limit,
        remaining,
        0,
        retryAfter,
        resetAfter,
        false,
        wouldRetryAfter,
        banned,
        rows,
        deciding,
        source,
        error);
  }

  /** Returns a denial as it is some time later, with this process as its source. */
  Decision aged(Duration passed) {
    List<Decision> older = new ArrayList<>(rows.size());
    for (Decision row : rows) {
      older.add(row.aged(passed));
    }
    return new Decision(
        allowed,
        rule,
        limit,
        remaining,
        granted,
        left(retryAfter, passed),
        left(resetAfter, passed),
        wouldAllow,
        left(wouldRetryAfter, passed),
        banned,
        List.copyOf(older),
        deciding,
        Source.LOCAL,
        error);
  }

  private static Duration left(Duration after, Duration passed) {
    if (after.equals(NEVER)) {
      return NEVER;
    }
    Duration left = after.minus(passed);
    return left.isNegative() ? Duration.ZERO : left;
  }

  /**
   * Returns the decision of several rules. The denial with the longest retry time decides; if all
   * allow, the rule with the fewest calls left.
   */
  static Decision combined(List<Decision> rows, List<Long> costs) {
    int deciding = 0;
    Duration longest = Duration.ZERO;
    UnavailableException away = null;
    for (int at = 0; at < rows.size(); at++) {
      Decision row = rows.get(at);
      if (at > 0 && row.decides(costs.get(at), rows.get(deciding), costs.get(deciding))) {
        deciding = at;
      }
      longest = row.retryAfter.compareTo(longest) > 0 ? row.retryAfter : longest;
      away = away == null ? row.error : away;
    }
    Decision whole = rows.get(deciding);
    if (whole.allowed) {
      whole = whole.withRetryAfter(longest);
    }
    return whole.withRows(List.copyOf(rows), deciding).withError(away);
  }

  private boolean decides(long cost, Decision other, long otherCost) {
    if (allowed != other.allowed) {
      return !allowed;
    }
    if (!allowed) {
      return retryAfter.compareTo(other.retryAfter) > 0;
    }
    long calls = callsLeft(cost);
    long others = other.callsLeft(otherCost);
    return calls != others ? calls < others : remaining < other.remaining;
  }

  private long callsLeft(long cost) {
    return cost == 0 ? Long.MAX_VALUE : Math.floorDiv(remaining, cost);
  }
}
