package redisthrottle.gateway;

import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.springframework.cloud.gateway.filter.ratelimit.RedisRateLimiter;
import redisthrottle.Decision;
import redisthrottle.HeaderStyle;
import redisthrottle.Item;
import redisthrottle.Problem;
import redisthrottle.Rule;
import redisthrottle.Source;

/**
 * The limit of a route.
 *
 * @param rule decides; that of a limit of 0 sends no call
 * @param isZero true if no request is allowed
 * @param cost the units that a request takes
 * @param styles the forms of the {@code RateLimit} fields
 * @param spring adds the fields of Spring's own limiter
 */
record Limit(
    Rule rule, boolean isZero, long cost, List<HeaderStyle> styles, @Nullable SpringFields spring) {
  /**
   * The fields of Spring's own limiter.
   *
   * @param rate the units per period, if the route has a rate
   */
  record SpringFields(@Nullable Long rate) {}

  Item item(String subject) {
    Item item = rule.of(subject);
    return cost == 1 ? item : item.cost(cost);
  }

  /** Returns the decision of a limit of 0. */
  Decision zeroDenial() {
    Duration never = Decision.NEVER;
    return new Decision(
        false,
        rule,
        0,
        0,
        0,
        never,
        Duration.ZERO,
        false,
        never,
        false,
        List.of(),
        0,
        Source.LOCAL,
        null);
  }

  /** Returns the body of the denials of a limit of 0. */
  Problem zeroProblem() {
    return new Problem(
        "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "Too Many Requests",
        429,
        "This limit allows no requests.",
        List.of(rule.name()));
  }

  /** Returns the fields of a response. */
  Map<String, String> fields(Decision d) {
    Map<String, String> fields = new HashMap<>(d.headers(styles, Instant.now()));
    if (spring != null) {
      // Spring's limiter writes -1 without a final reply.
      long left = d.source() == Source.ERROR ? -1 : d.remaining();
      fields.put(RedisRateLimiter.REMAINING_HEADER, Long.toString(left));
      long burst = d.limit() > 0 || isZero ? d.limit() : rule.limit();
      fields.put(RedisRateLimiter.BURST_CAPACITY_HEADER, Long.toString(burst));
      fields.put(RedisRateLimiter.REQUESTED_TOKENS_HEADER, Long.toString(cost));
      if (spring.rate != null) {
        fields.put(RedisRateLimiter.REPLENISH_RATE_HEADER, Long.toString(spring.rate));
      }
    }
    return fields;
  }
}
