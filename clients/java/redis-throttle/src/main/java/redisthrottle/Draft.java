package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Makes decisions, and decisions that differ from another one in some fields. */
final class Draft {
  private static final long NEVER_MS = Decision.NEVER.toMillis();

  private boolean allowed;
  private final Rule rule;
  private final long limit;
  private long remaining;
  private long granted;
  private Duration retryAfter;
  private Duration resetAfter;
  private boolean wouldAllow;
  private Duration wouldRetryAfter;
  private boolean banned;
  private List<Decision> rows;
  private int deciding;
  private Source source;
  private @Nullable UnavailableException error;

  private Draft(Decision of) {
    allowed = of.allowed();
    rule = of.rule();
    limit = of.limit();
    remaining = of.remaining();
    granted = of.granted();
    retryAfter = of.retryAfter();
    resetAfter = of.resetAfter();
    wouldAllow = of.wouldAllow();
    wouldRetryAfter = of.wouldRetryAfter();
    banned = of.banned();
    rows = of.rows();
    deciding = of.deciding();
    source = of.source();
    error = of.error();
  }

  /** Returns a draft with the fields of a decision. */
  static Draft of(Decision decision) {
    return new Draft(decision);
  }

  /** Returns a decision of one rule. A time below 0 means never. */
  static Decision decision(
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
    return ms < 0 || ms > NEVER_MS ? Decision.NEVER : Duration.ofMillis(ms);
  }

  Decision done() {
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
        error);
  }

  Draft would(boolean would, Duration after) {
    wouldAllow = would;
    wouldRetryAfter = after;
    return this;
  }

  Draft rows(List<Decision> others, int index) {
    rows = List.copyOf(others);
    deciding = index;
    return this;
  }

  Draft banned(boolean isBanned) {
    banned = isBanned;
    return this;
  }

  Draft retryAfter(Duration after) {
    retryAfter = after;
    return this;
  }

  Draft error(@Nullable UnavailableException unavailable) {
    error = unavailable;
    return this;
  }

  /** Makes it the decision of a permit that was taken from a grant. */
  Draft permit(long units, long left, Duration reset, Source from) {
    granted = units;
    remaining = left;
    resetAfter = reset;
    source = from;
    return this;
  }

  /** Makes it a denial of this process. */
  Draft denied(Duration after) {
    remaining = 0;
    retryAfter = after;
    wouldRetryAfter = after;
    source = Source.LOCAL;
    return tooLate();
  }

  /** Makes it a denial whose turn comes too late. */
  Draft tooLate() {
    allowed = false;
    granted = 0;
    wouldAllow = false;
    return this;
  }

  /** Makes it a denial as it is some time later, with this process as its source. */
  Draft aged(Duration passed) {
    List<Decision> older = new ArrayList<>(rows.size());
    rows.forEach(row -> older.add(new Draft(row).aged(passed).done()));
    retryAfter = left(retryAfter, passed);
    resetAfter = left(resetAfter, passed);
    wouldRetryAfter = left(wouldRetryAfter, passed);
    source = Source.LOCAL;
    return rows(older, deciding);
  }

  private static Duration left(Duration after, Duration passed) {
    if (after.equals(Decision.NEVER)) {
      return after;
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
    UnavailableException unavailable = null;
    for (int at = 0; at < rows.size(); at++) {
      Decision row = rows.get(at);
      if (at > 0 && decides(row, costs.get(at), rows.get(deciding), costs.get(deciding))) {
        deciding = at;
      }
      longest = row.retryAfter().compareTo(longest) > 0 ? row.retryAfter() : longest;
      unavailable = unavailable == null ? row.error() : unavailable;
    }
    Draft whole = new Draft(rows.get(deciding)).rows(rows, deciding).error(unavailable);
    return (whole.allowed ? whole.retryAfter(longest) : whole).done();
  }

  private static boolean decides(Decision row, long cost, Decision other, long otherCost) {
    if (row.allowed() != other.allowed()) {
      return !row.allowed();
    }
    if (!row.allowed()) {
      return row.retryAfter().compareTo(other.retryAfter()) > 0;
    }
    long calls = callsLeft(row, cost);
    long others = callsLeft(other, otherCost);
    return calls != others ? calls < others : row.remaining() < other.remaining();
  }

  private static long callsLeft(Decision row, long cost) {
    return cost == 0 ? Long.MAX_VALUE : Math.floorDiv(row.remaining(), cost);
  }
}
