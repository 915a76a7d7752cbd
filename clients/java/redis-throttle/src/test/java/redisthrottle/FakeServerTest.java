package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;

/** Decides by the fake server, as the tests of an application do. */
class FakeServerTest {
  private static final Rule API = Rule.gcra("api", 2, 1, Duration.ofMinutes(1));
  private static final FixedRule DAY = Rule.fixed("day", 10, Duration.ofDays(1));
  private static final Rule JOBS = Rule.lease("jobs", 1, Duration.ofMinutes(1));

  @Test
  void decides_on_a_clock_that_the_test_moves() {
    FakeServer server = new FakeServer();
    try (Limiter limiter = server.limiter().build()) {
      assertEquals(1, limiter.check(API.of("a")).remaining());
      assertTrue(limiter.check(API.of("a")).allowed());
      Decision denied = limiter.check(API.of("a"));
      assertEquals(Duration.ofMinutes(1), denied.retryAfter());
      assertEquals(Source.SERVER, denied.source());
      server.advance(Duration.ofMinutes(1));
      assertTrue(limiter.check(API.of("a")).allowed());
      assertTrue(limiter.forget(API.of("a")));
      assertEquals(0, limiter.peek(API.of("a").cost(2)).remaining());
      limiter.block(API.of("a"), Duration.ofMinutes(5));
      assertEquals(Duration.ofMinutes(5), limiter.check(API.of("a")).retryAfter());
      assertTrue(limiter.check(API.of("a").cost(3)).never());
      assertTrue(limiter.check(API.of("b").cost(3)).never());
    }
  }

  @Test
  void logs_decisions_without_the_server_once_per_second() {
    FakeServer server = new FakeServer();
    server.goAway();
    String line = "redis-throttle: %d calls decided without the server: connection";
    try (LogLines logged = LogLines.of("redisthrottle")) {
      try (Limiter limiter = server.limiter().build()) {
        for (int call = 0; call < 4; call++) {
          limiter.check(API.of("a"));
        }
        assertEquals(List.of(line.formatted(1)), logged.texts());
        server.advance(Duration.ofSeconds(1));
        assertEquals(line.formatted(3), logged.texts().get(1));
        limiter.check(API.of("a"));
        assertEquals(2, logged.texts().size());
      }
      assertEquals(line.formatted(1), logged.texts().get(2));
      try (Limiter limiter = server.limiter().logErrors(false).build()) {
        limiter.check(API.of("a"));
      }
      assertEquals(3, logged.texts().size());
    }
  }

  @Test
  void gives_a_call_up_when_its_result_timed_out() {
    FakeServer server = new FakeServer();
    try (Limiter limiter = server.limiter().build()) {
      limiter.check(API.of("a").cost(2));
      CompletableFuture<Decision> awaited =
          limiter
              .awaitAsync(API.of("a"), Duration.ofMinutes(5), CallOptions.NONE)
              .toCompletableFuture();
      // As orTimeout does.
      awaited.completeExceptionally(new TimeoutException());
      server.advance(Duration.ofMinutes(2));
      assertEquals(1, limiter.peek(API.of("a")).remaining());
    }
  }

  @Test
  void takes_from_all_rules_or_from_none() {
    FakeServer server = new FakeServer();
    try (Limiter limiter = server.limiter().build()) {
      Decision both = limiter.checkAll(List.of(API.of("a").cost(2), DAY.of("a").cost(4)));
      assertEquals(6, both.rows().get(1).remaining());
      Decision denied = limiter.checkAll(List.of(API.of("a"), DAY.of("a")));
      assertEquals("api", denied.rule().name());
      assertEquals(6, denied.rows().get(1).remaining());
      assertEquals(8, limiter.refund(DAY.of("a").cost(2)).remaining());
      assertEquals(5, limiter.charge(DAY.of("a").cost(3)).remaining());
      assertEquals(5, limiter.check(DAY.of("a").cost(9).partial()).granted());
    }
  }

  @Test
  void never_moves_the_clock_back() {
    FakeServer server = new FakeServer();
    Duration back = Duration.ofNanos(-1);
    assertThrows(InvalidArgumentException.class, () -> server.advance(back));
  }

  @Test
  void replies_by_the_script_to_commands_that_it_does_not_decide() {
    FakeServer server = new FakeServer();
    try (Limiter limiter = server.limiter().build()) {
      server.script(List.of(1, 1, 0, 0, 60_000), 1, 1, new ServerErrorException("OOM", null));
      Lease lease = limiter.lease(JOBS.of("t"));
      server.limiter().build().close();
      server.advance(Duration.ofSeconds(40));
      assertEquals("RL.RENEW", server.received().get(2).get(0));
      assertTrue(limiter.check(API.of("t")).allowed());
      assertTrue(lease.isHeld());
      assertEquals(Reason.SERVER, limiter.check(Rule.policy("plan").of("t")).reason());
      CommandRejectedException thrown =
          assertThrows(CommandRejectedException.class, () -> limiter.lease(JOBS.of("t")));
      assertTrue(thrown.getMessage().startsWith("ERR RL.LEASE is not decided here: call script()"));
    }
  }

  @Test
  void gives_units_back() {
    FakeServer server = new FakeServer();
    Rule hot = Rule.fixed("hot", 20, Duration.ofDays(1)).prefetch(5);
    try (Limiter limiter = server.limiter().build()) {
      limiter.giveBack(DAY.of("a"), limiter.check(DAY.of("a").cost(4)));
      assertEquals(9, limiter.peek(DAY.of("a")).remaining());
      limiter.check(hot.of("a"));
      Decision permit = limiter.check(hot.of("a"));
      assertEquals(Source.LOCAL, permit.source());
      int calls = server.received().size();
      limiter.giveBack(hot.of("a"), permit);
      assertEquals(permit.remaining(), limiter.check(hot.of("a")).remaining());
      assertEquals(calls, server.received().size());
      server.goAway();
      for (Rule one : localRules()) {
        Decision here = limiter.check(one.of("a").cost(5));
        assertEquals(Source.LOCAL, here.source());
        assertFalse(limiter.check(one.of("a")).allowed());
        limiter.giveBack(one.of("a"), here);
        assertEquals(4, limiter.check(one.of("a")).remaining(), one.name());
      }
      Rule jobs = Rule.backoff("login", 3, secs(1), secs(60), secs(3600));
      limiter.assertDecides(jobs);
    }
    try (Limiter local = server.limiter().onError(OnError.LOCAL).build()) {
      assertThrows(InvalidArgumentException.class, () -> local.assertDecides(JOBS));
    }
  }

  private static Duration secs(long seconds) {
    return Duration.ofSeconds(seconds);
  }

  private static List<Rule> localRules() {
    return List.of(
        Rule.gcra("gcra", 5, 5, secs(3600)).onError(OnError.LOCAL),
        Rule.fixed("fixed", 5, secs(3600)).onError(OnError.LOCAL),
        Rule.fixed("aligned", 5, secs(3600)).aligned().onError(OnError.LOCAL),
        Rule.sliding("sliding", 5, secs(3600)).onError(OnError.LOCAL),
        Rule.slidingLog("log", 5, secs(3600)).onError(OnError.LOCAL));
  }

  @Test
  void goes_away_and_hangs() {
    FakeServer server = new FakeServer();
    try (Limiter limiter = server.limiter().onError(OnError.DENY).build()) {
      server.goAway();
      assertEquals(Reason.CONNECTION, limiter.check(API.of("a")).reason());
      server.answer();
      server.advance(Duration.ofSeconds(1));
      assertTrue(limiter.check(API.of("a")).allowed());
      server.hang();
      CompletableFuture<Decision> waiting = limiter.checkAsync(API.of("a")).toCompletableFuture();
      assertFalse(waiting.isDone());
      server.advance(Duration.ofMillis(100));
      assertEquals(Reason.TIMEOUT, waiting.join().reason());
      server.answer();
      assertTrue(limiter.check(API.of("a")).allowed());
    }
  }

  @Test
  void refuses_words_that_no_limiter_sends() {
    Connection connection =
        new FakeServer().connect(null, Duration.ZERO).toCompletableFuture().join();
    String all =
        "RL.ALL RL.PEEK RL.GCRA RL.SLIDING RL.SLIDINGLOG RL.RESERVE RL.COMMIT RL.CHARGE RL.REFUND"
            + " RL.LEASE RL.RENEW RL.BLOCK RL.QUOTA RL.BACKOFF RL.USE RL.X GET k GCRA FIXED LEASE"
            + " QUOTA BACKOFF SLIDING SLIDINGLOG SLOTS COST LEAVE USE DEFAULT RESERVE 0 1 7 -1"
            + " 1000000000000 9223372036854775807 60 1ms 366d 31622400 100% day PARTIAL";
    List<String> choice = List.of(all.split(" "));
    Random random = new Random(1);
    for (int at = 0; at < 20_000; at++) {
      List<String> words = new ArrayList<>();
      for (int left = random.nextInt(9); left >= 0; left--) {
        words.add(choice.get(random.nextInt(choice.size())));
      }
      boolean isAll = random.nextInt(4) == 0;
      List<String> sent = isAll ? List.of("RL.ALL", "k", String.join(" ", words)) : words;
      Throwable error =
          connection.send(sent).handle((reply, thrown) -> thrown).toCompletableFuture().join();
      assertTrue(error == null || error instanceof ServerErrorException, () -> sent + " " + error);
    }
  }
}
