package redisthrottle;

import java.time.Duration;
import java.time.Instant;
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
 * @param error the reason that there was no final reply, if {@link OnError} decided; otherwise null
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
  /** The {@code retryAfter} of a call that is never allowed, 2^53 - 1 milliseconds. */
  public static final Duration NEVER = Duration.ofMillis((1L << 53) - 1);

  /** Returns true if a retry never helps: the cost is above the limit, or the key is banned. */
  public boolean never() {
    return retryAfter.equals(NEVER);
  }

  /** Returns true if {@link OnError} decided. */
  public boolean degraded() {
    return error != null;
  }

  /** Returns the reason that there was no final reply; null unless degraded. */
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
    List<Headers.Row> all = rows.stream().map(Decision::row).toList();
    return new Headers(row(), all)
        .fields(Checks.present("styles", styles), Checks.present("now", now));
  }

  private Headers.Row row() {
    Duration retry = never() ? null : retryAfter;
    boolean isError = source == Source.ERROR;
    return new Headers.Row(
        rule.name(), rule.window(), limit, remaining, allowed, retry, resetAfter, isError);
  }

  /**
   * Returns the body of the response to a denial: status 429; 413 if a retry never helps; 403 for a
   * ban; 503 if {@link OnError} decided.
   */
  public Problem problem() {
    if (source == Source.ERROR) {
      return Problem.plain(503, "Service Unavailable", "The rate limiter is not available.");
    }
    if (banned) {
      return Problem.plain(403, "Forbidden", "This caller is blocked.");
    }
    if (never()) {
      return Problem.plain(
          413, "Content Too Large", "This request costs more than its limit allows at once.");
    }
    List<String> violated =
        rows.stream().filter(row -> !row.allowed()).map(row -> row.rule().name()).toList();
    List<String> names = violated.isEmpty() ? List.of(rule.name()) : violated;
    return Problem.exceeded(Headers.retrySeconds(retryAfter), names);
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
}
