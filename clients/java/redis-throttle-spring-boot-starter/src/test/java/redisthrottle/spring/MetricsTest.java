package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.composite.CompositeMeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import redisthrottle.Connection;
import redisthrottle.Connector;
import redisthrottle.FakeServer;
import redisthrottle.Limiter;
import redisthrottle.OnError;
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

  @Test
  void counts_checks_by_rule_outcome_and_source() {
    try (Limiter limiter = limiter()) {
      Rule api = Rule.fixed("api", 2, MINUTE);
      Rule day = Rule.fixed("day", 1, MINUTE);
      limiter.check(api.of("ada"));
      limiter.checkAll(List.of(api.of("ada"), day.of("ada")));
      limiter.checkAll(List.of(api.of("ada"), day.of("ada")));
      // None of these is a check.
      limiter.peek(api.of("ada"));
      limiter.refund(api.of("ada"));
      server.script(List.of(1, 1, 0, 0, 60_000), 1);
      limiter.lease(Rule.lease("jobs", 1, MINUTE).of("ada")).close();
      assertEquals(
          """
          redis_throttle_checks_total{outcome="allowed",rule="api",source="server"} 2.0
          redis_throttle_checks_total{outcome="allowed",rule="jobs",source="server"} 1.0
          redis_throttle_checks_total{outcome="denied",rule="api",source="server"} 1.0""",
          lines("redis_throttle_checks_total"));
    }
  }

  /** A server that bans all callers. */
  private static final class Banning implements Connector, Connection {
    @Override
    public CompletionStage<Connection> connect(String node, Duration timeout) {
      return CompletableFuture.completedFuture(this);
    }

    @Override
    public CompletionStage<Object> send(List<String> words) {
      return CompletableFuture.completedFuture(List.of(0L, 9L, 0L, -1L, 0L));
    }

    @Override
    public boolean isOpen() {
      return true;
    }

    @Override
    public void close() {}
  }

  @Test
  void counts_a_ban_apart_from_a_denial() {
    try (Limiter limiter = Limiter.builder(new Banning()).build()) {
      new ThrottleMetrics(List.of(limiter)).bindTo(registry);
      limiter.check(Rule.fixed("api", 9, MINUTE).of("ada"));
      assertEquals(
          """
          redis_throttle_checks_total{outcome="banned",rule="api",source="server"} 1.0""",
          lines("redis_throttle_checks_total"));
    }
  }

  @Test
  void counts_what_on_error_decided_and_the_open_breaker() {
    try (Limiter limiter = limiter()) {
      Rule open = Rule.fixed("open", 2, MINUTE);
      server.goAway();
      limiter.check(open.of("ada"));
      limiter.check(open.onError(OnError.DENY).of("ada"));
      limiter.check(open.onError(OnError.LOCAL).of("ada"));
      assertEquals(
          """
          redis_throttle_degraded_total{on_error="allow",reason="connection",rule="open"} 1.0
          redis_throttle_degraded_total{on_error="deny",reason="circuit",rule="open"} 1.0
          redis_throttle_degraded_total{on_error="local",reason="circuit",rule="open"} 1.0""",
          lines("redis_throttle_degraded_total"));
      assertEquals(
          """
          redis_throttle_checks_total{outcome="allowed",rule="open",source="error"} 1.0
          redis_throttle_checks_total{outcome="allowed",rule="open",source="local"} 1.0
          redis_throttle_checks_total{outcome="denied",rule="open",source="error"} 1.0""",
          lines("redis_throttle_checks_total"));
      assertEquals("redis_throttle_breaker_open 1.0", lines("redis_throttle_breaker_open"));
      server.answer();
      server.advance(Duration.ofSeconds(1));
      limiter.check(open.of("ada"));
      assertEquals("redis_throttle_breaker_open 0.0", lines("redis_throttle_breaker_open"));
    }
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
