package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.micrometer.core.instrument.composite.CompositeMeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import redisthrottle.EventCases;
import redisthrottle.FakeServer;
import redisthrottle.Limiter;
import redisthrottle.Rule;

/** Reads the text that Prometheus gets. */
class MetricsTest {
  private static final Duration MINUTE = Duration.ofMinutes(1);

  private final PrometheusMeterRegistry registry =
      new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
  private final FakeServer server = new FakeServer();

  private Limiter limiter() {
    Limiter limiter = server.limiter().breaker(1, Duration.ofSeconds(1)).build();
    new ThrottleMetrics(List.of(limiter)).bindTo(registry);
    return limiter;
  }

  /** Returns the lines of a metric without comments. */
  private String lines(String name) {
    return Arrays.stream(registry.scrape().split("\n"))
        .filter(line -> line.startsWith(name))
        .collect(Collectors.joining("\n"));
  }

  @TestFactory
  Stream<DynamicTest> counts_the_shared_events() {
    return EventCases.tests(
        limiter -> {
          PrometheusMeterRegistry own = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
          new ThrottleMetrics(List.of(limiter)).bindTo(own);
          return wanted -> assertEquals(expected(wanted.get("metrics")), samples(own.scrape()));
        });
  }

  /** Returns the samples of a case: the name with its labels, and the value. */
  private static Map<String, Double> expected(JsonNode metrics) {
    Map<String, Double> samples = new TreeMap<>();
    for (JsonNode one : metrics) {
      String labels =
          one.get(1).properties().stream()
              .map(label -> label.getKey() + "=" + label.getValue())
              .sorted()
              .collect(Collectors.joining(","));
      samples.put(one.get(0).asText() + "{" + labels + "}", one.get(2).asDouble());
    }
    return samples;
  }

  /** Returns the samples other than 0 that the cases have: of histograms few. */
  private static Map<String, Double> samples(String scraped) {
    Map<String, Double> samples = new TreeMap<>();
    for (String line : scraped.split("\n")) {
      String[] parts = line.replaceFirst("^redis_throttle_", "").split(" ");
      boolean isOther = parts[0].matches("#.*|.*_(bucket|max)\\b.*|latency_seconds_sum.*");
      if (!isOther && Double.parseDouble(parts[1]) != 0) {
        String name = parts[0].contains("{") ? parts[0] : parts[0] + "{}";
        samples.put(name, Double.valueOf(parts[1]));
      }
    }
    return samples;
  }

  @Test
  void has_the_buckets_of_all_clients() {
    registry.config().commonTags("application", "shop");
    try (Limiter limiter = limiter()) {
      Rule rule = Rule.fixed("api", 4, MINUTE);
      limiter.check(rule.of("ada"));
      limiter.check(rule.of("ada").cost(3));
      limiter.check(rule.of("ada").cost(3));
      assertEquals(
          """
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="0.0"} 2
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="0.1"} 2
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="0.25"} 2
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="0.5"} 2
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="0.75"} 3
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="0.9"} 3
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="1.0"} 3
          redis_throttle_remaining_ratio_bucket{application="shop",rule="api",le="+Inf"} 3""",
          lines("redis_throttle_remaining_ratio_bucket"));
      List<Double> bounds =
          lines("redis_throttle_latency_seconds_bucket{application=\"shop\",source=\"server\"")
              .lines()
              .map(line -> line.replaceAll(".*le=\"(.*)\".*", "$1").replace("+Inf", "Infinity"))
              .map(Double::valueOf)
              .toList();
      assertEquals(
          List.of(
              0.0001,
              0.00025,
              0.0005,
              0.001,
              0.0025,
              0.005,
              0.01,
              0.025,
              0.05,
              0.1,
              0.25,
              0.5,
              1.0,
              Double.POSITIVE_INFINITY),
          bounds);
      assertEquals(
          "redis_throttle_latency_seconds_count{application=\"shop\",source=\"server\"} 3",
          lines("redis_throttle_latency_seconds_count"));
    }
  }

  @Test
  void shows_rules_after_the_hundredth_as_other() {
    try (Limiter limiter = limiter()) {
      for (int rule = 1; rule <= 102; rule++) {
        limiter.check(Rule.fixed("rule" + rule, 1, MINUTE).of("ada"));
      }
      limiter.check(Rule.fixed("rule1", 1, MINUTE).of("bob"));
      String checks = lines("redis_throttle_checks_total");
      assertEquals(101, checks.lines().count());
      assertTrue(checks.contains("rule=\"rule1\",source=\"server\"} 2.0"), checks);
      assertTrue(checks.contains("rule=\"rule100\",source=\"server\"} 1.0"), checks);
      assertTrue(checks.contains("rule=\"(other)\",source=\"server\"} 2.0"), checks);
    }
  }

  @Test
  void adds_up_the_breakers_of_several_limiters() {
    try (Limiter one = server.limiter().breaker(1, MINUTE).build();
        Limiter two = server.limiter().breaker(1, MINUTE).build()) {
      new ThrottleMetrics(List.of(one, two)).bindTo(registry);
      server.goAway();
      Rule rule = Rule.fixed("api", 4, MINUTE);
      one.check(rule.of("ada"));
      two.check(rule.of("ada"));
      assertEquals("redis_throttle_breaker_open 2.0", lines("redis_throttle_breaker_open"));
      assertEquals(1, lines("redis_throttle_checks_total").lines().count());
      server.answer();
      server.advance(MINUTE);
      one.check(rule.of("ada"));
      assertEquals("redis_throttle_breaker_open 1.0", lines("redis_throttle_breaker_open"));
      two.check(rule.of("ada"));
      assertEquals("redis_throttle_breaker_open 0.0", lines("redis_throttle_breaker_open"));
    }
  }

  @Test
  void has_the_ratio_in_each_registry_of_several() {
    SimpleMeterRegistry simple = new SimpleMeterRegistry();
    CompositeMeterRegistry both = new CompositeMeterRegistry().add(registry).add(simple);
    try (Limiter limiter = server.limiter().build()) {
      new ThrottleMetrics(List.of(limiter)).bindTo(both);
      limiter.check(Rule.fixed("api", 4, MINUTE).of("ada"));
      assertEquals(
          "redis_throttle_remaining_ratio_count{rule=\"api\"} 1",
          lines("redis_throttle_remaining_ratio_count"));
      assertEquals(0.75, simple.get("redis.throttle.remaining.ratio").summary().totalAmount());
    }
  }
}
