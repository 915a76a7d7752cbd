package redisthrottle.gateway;

import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.cloud.gateway.filter.ratelimit.RedisRateLimiter;
import redisthrottle.Decision;
import redisthrottle.Item;
import redisthrottle.Problem;
import redisthrottle.Rule;
import redisthrottle.Source;

/**
 * The limit of a route: its configuration, and the rule that this makes.
 *
 * @param rule of a limit of 0 a rule that is never asked
 */
record Limit(ThrottleRateLimiter.Config config, Rule rule) {
  Item item(String subject) {
    Item item = rule.of(subject);
    return config.cost == 1 ? item : item.cost(config.cost);
  }

  /** Returns true if no request is allowed. */
  boolean isZero() {
    return config.isZero();
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
    Map<String, String> fields = new HashMap<>(d.headers(config.headers, Instant.now()));
    if (config.springHeaders) {
      // Spring's limiter writes -1 without an answer.
      long left = d.source() == Source.ERROR ? -1 : d.remaining();
      fields.put(RedisRateLimiter.REMAINING_HEADER, Long.toString(left));
      long burst = d.limit() > 0 || isZero() ? d.limit() : rule.limit();
      fields.put(RedisRateLimiter.BURST_CAPACITY_HEADER, Long.toString(burst));
      fields.put(RedisRateLimiter.REQUESTED_TOKENS_HEADER, Long.toString(config.cost));
      if (config.rate != null) {
        fields.put(RedisRateLimiter.REPLENISH_RATE_HEADER, Long.toString(config.rate));
      }
    }
    return fields;
  }
}
