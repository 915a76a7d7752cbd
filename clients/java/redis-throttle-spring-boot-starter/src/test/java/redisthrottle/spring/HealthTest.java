package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.Status;
import redisthrottle.FakeServer;
import redisthrottle.Limiter;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Server;

/** Calls the health indicator. */
class HealthTest {
  private static final Duration PATIENT = Duration.ofMinutes(1);
  private static Server redis;

  @BeforeAll
  static void start() {
    redis = Server.withModule();
  }

  @AfterAll
  static void stop() {
    redis.close();
  }

  private static Health health(Limiter limiter, Duration patience, boolean failsClosed) {
    return new ThrottleHealth(limiter, patience, failsClosed).health();
  }

  @Test
  void is_up_with_the_back_end_that_replies() {
    LettuceConnector connector = LettuceConnector.of(Server.CLIENT, redis.uri());
    try (Limiter limiter = Limiter.builder(connector).timeout(PATIENT).build()) {
      Health health = health(limiter, PATIENT, true);
      assertEquals(Status.UP, health.getStatus());
      assertEquals(Map.of("backend", "module", "openBreakers", 0), health.getDetails());
    }
  }

  @Test
  void is_down_without_a_reply_only_if_a_rule_then_denies() {
    FakeServer server = new FakeServer();
    server.goAway();
    try (Limiter limiter = server.limiter().breaker(1, Duration.ofSeconds(1)).build()) {
      assertEquals(Status.DOWN, health(limiter, PATIENT, true).getStatus());
      Health open = health(limiter, PATIENT, false);
      assertEquals(Status.UNKNOWN, open.getStatus());
      assertEquals(Map.of("reason", "circuit", "openBreakers", 1), open.getDetails());
    }
  }

  @Test
  void waits_no_longer_than_a_call_may_take() {
    FakeServer server = new FakeServer();
    server.hang();
    // The clock of this limiter stands still, so that only the indicator ends the wait.
    try (Limiter limiter = server.limiter().build()) {
      long begin = System.nanoTime();
      Health health = health(limiter, Duration.ofMillis(100), true);
      assertEquals(Map.of("reason", "timeout", "openBreakers", 0), health.getDetails());
      assertTrue(System.nanoTime() - begin >= Duration.ofMillis(100).toNanos());
    }
  }
}
