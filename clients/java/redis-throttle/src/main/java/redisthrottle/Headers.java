package redisthrottle;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Writes the HTTP fields that report a decision. */
final class Headers {
  /** Stands for no retry time. */
  static final long NO_SECONDS = Long.MAX_VALUE;

  private final Decision decision;
  private final Map<String, String> fields = new LinkedHashMap<>();

  Headers(Decision decision) {
    this.decision = decision;
  }

  Map<String, String> fields(List<HeaderStyle> styles, Instant now) {
    long retryAfter = decision.allowed() ? NO_SECONDS : retrySeconds(decision);
    if (decision.source() != Source.ERROR) {
      if (styles.contains(HeaderStyle.DRAFT_11)) {
        structured(retryAfter);
      }
      if (styles.contains(HeaderStyle.DRAFT_6)) {
        three("", secondsLeft(decision, retryAfter));
      }
      if (styles.contains(HeaderStyle.X_RATELIMIT)) {
        boolean isRetry = retryAfter != NO_SECONDS;
        Duration wait = isRetry ? decision.retryAfter() : decision.resetAfter();
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

  /** Returns {@code Retry-After}: at least 1, or {@code NO_SECONDS} if a retry never helps. */
  static long retrySeconds(Decision d) {
    return d.never() ? NO_SECONDS : Math.max(1, ceilSeconds(d.retryAfter()));
  }

  private void structured(long retryAfter) {
    List<Decision> rows = decision.rows().isEmpty() ? List.of(decision) : decision.rows();
    List<String> policies = new ArrayList<>();
    List<String> states = new ArrayList<>();
    for (Decision row : rows) {
      if (row.source() == Source.ERROR) {
        continue;
      }
      // The characters of a name need no escape.
      String name = '"' + row.rule().name() + '"';
      Duration window = row.rule().window();
      boolean hasWindow = window != null && window.getSeconds() > 0;
      policies.add(name + ";q=" + row.limit() + (hasWindow ? ";w=" + ceilSeconds(window) : ""));
      states.add(name + ";r=" + row.remaining() + ";t=" + secondsLeft(row, retryAfter));
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
  private static long secondsLeft(Decision d, long retryAfter) {
    long own = d.allowed() ? NO_SECONDS : retrySeconds(d);
    return Math.min(own == NO_SECONDS ? ceilSeconds(d.resetAfter()) : own, retryAfter);
  }

  private void three(String prefix, long reset) {
    fields.put(prefix + "RateLimit-Limit", Long.toString(decision.limit()));
    fields.put(prefix + "RateLimit-Remaining", Long.toString(decision.remaining()));
    fields.put(prefix + "RateLimit-Reset", Long.toString(reset));
  }
}
