package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import redisthrottle.Connection;
import redisthrottle.Decision;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.LimiterBuilder;
import redisthrottle.Reason;
import redisthrottle.Rule;
import redisthrottle.Source;

/** Holds limits while the program is busy, the server stalls or callers leave. */
class PressureTest {
  private static final Duration HOUR = Duration.ofHours(1);
  private static final Duration PATIENT = Duration.ofMinutes(1);
  private static final int CALLS = 10_000;
  private static Server server;

  @BeforeAll
  static void start() {
    server = Server.withModule("--enable-debug-command", "yes");
  }

  @AfterAll
  static void stop() {
    server.close();
  }

  private static LimiterBuilder builder() {
    return Limiter.builder(LettuceConnector.of(Server.CLIENT, server.uri())).logErrors(false);
  }

  private static List<CompletableFuture<Decision>> begin(Limiter limiter, Item item, int calls) {
    List<CompletableFuture<Decision>> all = new ArrayList<>();
    for (int call = 0; call < calls; call++) {
      all.add(limiter.checkAsync(item).toCompletableFuture());
    }
    return all;
  }

  @Test
  void reads_what_has_arrived_though_the_thread_of_the_driver_was_busy() throws Exception {
    LettuceConnector connector = LettuceConnector.of(Server.CLIENT, server.uri());
    Connection connection = connector.connect(null, PATIENT).toCompletableFuture().join();
    CompletableFuture<Object> reply =
        connection.send(List.of("BLPOP", "queue", "0")).toCompletableFuture();
    CountDownLatch isBusy = new CountDownLatch(1);
    CountDownLatch ends = new CountDownLatch(1);
    connection.whenRead(
        () -> {
          isBusy.countDown();
          assertDoesNotThrow(() -> ends.await());
        });
    CompletableFuture<Boolean> wasRead = new CompletableFuture<>();
    try (Socket other = new Socket("127.0.0.1", server.port)) {
      assertTrue(isBusy.await(PATIENT.toSeconds(), TimeUnit.SECONDS));
      connection.whenRead(() -> wasRead.complete(reply.isDone()));
      long sentAt = System.nanoTime();
      // The reply to each follows that to the blocked command.
      for (String line = "RPUSH queue a\r\n"; line != null; ) {
        other.getOutputStream().write(line.getBytes(StandardCharsets.US_ASCII));
        assertTrue(other.getInputStream().read(new byte[64]) > 0);
        boolean isLate = System.nanoTime() - sentAt > 5_000_000;
        line = isLate && line.startsWith("PING") ? null : "PING\r\n";
      }
    } finally {
      ends.countDown();
    }
    assertTrue(wasRead.get(PATIENT.toSeconds(), TimeUnit.SECONDS), "it ran before the reply");
    connection.close();
    connector.close();
  }

  private static void assertHolds(Rule rule, double refillPerSecond, boolean isWarm) {
    try (Limiter limiter = builder().build()) {
      if (isWarm) {
        limiter.ready();
      }
      long begin = System.nanoTime();
      List<CompletableFuture<Decision>> all = begin(limiter, rule.of("herd"), CALLS);
      long allowed = all.stream().filter(one -> one.join().allowed()).count();
      double seconds = (System.nanoTime() - begin) / 1e9;
      assertTrue(allowed >= 1000, allowed + " calls were allowed");
      assertTrue(allowed <= 1010 + refillPerSecond * seconds, allowed + " calls were allowed");
      long degraded = limiter.counters().degraded();
      assertTrue(degraded <= CALLS / 100, degraded + " calls had no reply");
    }
  }

  @Test
  void a_cold_herd_takes_the_limit_once() {
    assertHolds(Rule.fixed("cold", 1000, HOUR), 0, false);
  }

  @Test
  void a_warm_herd_takes_the_limit_and_its_refill() {
    assertHolds(Rule.gcra("warm", 1000, 6000, Duration.ofMinutes(1)), 100, true);
  }

  @Test
  void a_stall_shorter_than_the_silence_decides_no_call() {
    Rule rule = Rule.fixed("stall", 1_000_000, HOUR);
    LimiterBuilder builder = builder().timeout(Duration.ofSeconds(10)).maxInFlight(32);
    try (Limiter limiter = builder.silence(Duration.ofSeconds(2)).build()) {
      limiter.ready();
      for (int stall = 0; stall < 3; stall++) {
        CompletableFuture<Void> stalled =
            CompletableFuture.runAsync(() -> server.send("DEBUG", "SLEEP", "0.3"));
        begin(limiter, rule.of("a"), 256)
            .forEach(one -> assertEquals(Source.SERVER, one.join().source()));
        stalled.join();
      }
      assertEquals(0, limiter.counters().degraded());
    }
  }

  @Test
  void a_longer_stall_allows_no_call_of_a_key_that_was_denied() {
    Rule rule = Rule.fixed("denied", 1, HOUR);
    try (Limiter limiter = builder().build()) {
      limiter.ready();
      Server.await("a denial", () -> isDenied(limiter.check(rule.of("a"))));
      CompletableFuture<Void> stalled =
          CompletableFuture.runAsync(() -> server.send("DEBUG", "SLEEP", "0.3"));
      int calls = 0;
      while (!stalled.isDone()) {
        assertFalse(limiter.check(rule.of("a")).allowed());
        calls++;
      }
      assertTrue(calls > 1, "only " + calls + " calls in the stall");
    }
  }

  private static boolean isDenied(Decision d) {
    return d.source() == Source.SERVER && !d.allowed();
  }

  @Test
  void paused_writes_end_calls_by_the_silence_and_the_server_then_decides_again() {
    Rule rule = Rule.fixed("paused", 1000, HOUR);
    try (Limiter limiter = builder().build()) {
      limiter.ready();
      Server.await("a decision", () -> isDecided(limiter, rule));
      server.send("CLIENT", "PAUSE", "2000", "WRITE");
      assertEquals(Reason.TIMEOUT, limiter.check(rule.of("a")).reason());
      Server.await("a decision", () -> isDecided(limiter, rule));
    } finally {
      server.send("CLIENT", "UNPAUSE");
    }
  }

  @Test
  void a_stopped_server_decides_again_once_it_goes_on() {
    Rule rule = Rule.fixed("stopped", 1000, HOUR);
    try (Limiter limiter = builder().build()) {
      limiter.ready();
      Server.await("a decision", () -> isDecided(limiter, rule));
      server.signal("STOP");
      try {
        assertEquals(Reason.TIMEOUT, limiter.check(rule.of("a")).reason());
      } finally {
        server.signal("CONT");
      }
      Server.await("a decision", () -> isDecided(limiter, rule));
    }
  }

  private static boolean isDecided(Limiter limiter, Rule rule) {
    return limiter.check(rule.of("a")).source() == Source.SERVER;
  }
}
