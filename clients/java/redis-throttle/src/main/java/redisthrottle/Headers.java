package redisthrottle;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Writes the HTTP fields that report a decision. */
final class Headers {
  /**
   * What the fields report of a decision.
   *
   * @param retryAfter null if a retry never helps
   * @param isError true if there was no final reply
   */
  record Row(
      String name,
      @Nullable Duration window,
      long limit,
      long remaining,
      boolean allowed,
      @Nullable Duration retryAfter,
      Duration resetAfter,
      boolean isError) {
    /** Returns the seconds until a retry; {@code NO_SECONDS} if it never helps or is not needed. */
    private long retry() {
      return allowed || retryAfter == null ? NO_SECONDS : retrySeconds(retryAfter);
    }
  }

  /** Stands for no retry time. */
  private static final long NO_SECONDS = Long.MAX_VALUE;

  private final Row decision;
  private final List<Row> rows;
  private final Map<String, String> fields = new LinkedHashMap<>();

  /** Reports a decision, and those of its rules if there are several. */
  Headers(Row decision, List<Row> rows) {
    this.decision = decision;
    this.rows = rows.isEmpty() ? List.of(decision) : rows;
  }

  Map<String, String> fields(List<HeaderStyle> styles, Instant now) {
    long retryAfter = decision.retry();
    if (!decision.isError) {
      if (styles.contains(HeaderStyle.DRAFT_11)) {
        structured(retryAfter);
      }
      if (styles.contains(HeaderStyle.DRAFT_6)) {
        three("", secondsLeft(decision, retryAfter));
      }
      if (styles.contains(HeaderStyle.X_RATELIMIT)) {
        Duration retry = decision.allowed ? null : decision.retryAfter;
        Duration wait = retry == null ? decision.resetAfter : retry;
        three("X-", ceilSeconds(Duration.between(Instant.EPOCH, now).plus(wait)));
      }
    }
    if (retryAfter != NO_SECONDS) {
      fields.put("Retry-After", Long.toString(retryAfter));
    }
    return fields;
  }

  private static long ceilSeconds(Duration d) {
    return d.getSeconds() + (d.getNano() > 0 ? 1 : 0);
  }

  /** Returns {@code Retry-After}, which is at least 1. */
  static long retrySeconds(Duration after) {
    return Math.max(1, ceilSeconds(after));
  }

  private void structured(long retryAfter) {
    List<String> policies = new ArrayList<>();
    List<String> states = new ArrayList<>();
    for (Row row : rows) {
      if (row.isError) {
        continue;
      }
      // The characters of a name need no escape.
      String name = '"' + row.name + '"';
      Duration window = row.window;
      boolean hasWindow = window != null && window.getSeconds() > 0;
      policies.add(name + ";q=" + row.limit + (hasWindow ? ";w=" + ceilSeconds(window) : ""));
      states.add(name + ";r=" + row.remaining + ";t=" + secondsLeft(row, retryAfter));
    }
    if (!states.isEmpty()) {
      fields.put("RateLimit-Policy", String.join(", ", policies));
      fields.put("RateLimit", String.join(", ", states));
    }
  }

  /**
   * Returns the seconds until the retry if the rule denies, otherwise until the reset; at most
   * {@code retryAfter}.
   */
  private static long secondsLeft(Row row, long retryAfter) {
    long own = row.retry();
    return Math.min(own == NO_SECONDS ? ceilSeconds(row.resetAfter) : own, retryAfter);
  }

  private void three(String prefix, long reset) {
    fields.put(prefix + "RateLimit-Limit", Long.toString(decision.limit));
    fields.put(prefix + "RateLimit-Remaining", Long.toString(decision.remaining));
    fields.put(prefix + "RateLimit-Reset", Long.toString(reset));
  }
}
