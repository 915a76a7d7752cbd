package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import redisthrottle.Admission;
import redisthrottle.Backend;
import redisthrottle.CommandRejectedException;
import redisthrottle.Connection;
import redisthrottle.Decision;
import redisthrottle.DeniedException;
import redisthrottle.FixedRule;
import redisthrottle.Item;
import redisthrottle.Lease;
import redisthrottle.Limiter;
import redisthrottle.NotSentException;
import redisthrottle.Reason;
import redisthrottle.Rule;
import redisthrottle.Source;

/** Runs against one server, also behind a proxy. */
class SingleTest {
  private static final Duration PATIENT = Duration.ofMinutes(1);
  private static final Rule API = Rule.gcra("api", 1000, 1, Duration.ofHours(1));

  private static Limiter limiter(RedisURI uri, Duration timeout) {
    return Limiter.builder(LettuceConnector.of(Server.CLIENT, uri))
        .timeout(timeout)
        .breaker(5, Duration.ofMillis(50))
        .build();
  }

  @Test
  void decides_on_the_module() {
    try (Server server = Server.withModule();
        Limiter limiter = limiter(server.uri(), PATIENT)) {
      assertEquals(Backend.MODULE, limiter.ready());
      FixedRule day = Rule.fixed("day", 10, Duration.ofDays(1));
      Rule jobs = Rule.lease("jobs", 1, Duration.ofSeconds(60));
      Decision d = limiter.check(API.of("größe 1").cost(3));
      assertEquals(Source.SERVER, d.source());
      assertEquals(997, d.remaining());
      assertEquals(998, limiter.refund(API.of("größe 1")).remaining());
      assertEquals(997, limiter.charge(API.of("größe 1")).remaining());
      assertEquals(996, limiter.peek(API.of("größe 1")).remaining());
      assertTrue(limiter.forget(API.of("größe 1")));
      limiter.block(API.of("a"), Duration.ofMinutes(1));
      assertFalse(limiter.check(API.of("a")).allowed());
      try (Lease lease = limiter.lease(jobs.of("t"))) {
        assertTrue(lease.renew());
        assertThrows(DeniedException.class, () -> limiter.lease(jobs.of("t")));
      }
      try (Admission admission =
          limiter.admit(List.of(jobs.of("t"), day.of("t").reserve(4), API.of("t").cost(5)))) {
        admission.settle(day, 2);
        admission.settle(API, 1);
      }
      assertEquals(7, limiter.peek(day.of("t")).remaining());
      assertEquals(998, limiter.peek(API.of("t")).remaining());
      assertEquals(0, limiter.counters().unsettled());
    }
  }

  @Test
  void decides_by_each_method_without_the_module() {
    for (Backend wanted : List.of(Backend.FUNCTIONS, Backend.SCRIPT)) {
      try (Server server = Server.start();
          Limiter limiter =
              Limiter.builder(LettuceConnector.of(Server.CLIENT, server.uri()))
                  .timeout(PATIENT)
                  .backend(wanted)
                  .build()) {
        assertEquals(wanted, limiter.ready());
        callEachMethod(limiter);
      }
    }
  }

  private static void callEachMethod(Limiter limiter) {
    Item item = API.of("a");
    List<Item> both = List.of(item, Rule.sliding("s", 5, Duration.ofMinutes(1)).of("a"));
    assertEquals(997, limiter.check(item.cost(3)).remaining());
    assertEquals(996, limiter.peek(item).remaining());
    assertEquals(995, limiter.charge(item.cost(2)).remaining());
    assertEquals(996, limiter.refund(item).remaining());
    assertEquals(996, limiter.check(item.cost(1000).partial()).granted());
    assertFalse(limiter.check(item.leave(1)).allowed());
    assertTrue(limiter.forget(item));
    limiter.block(item, Duration.ofMinutes(1));
    assertFalse(limiter.peek(item).allowed());
    assertTrue(limiter.forget(item));
    assertEquals(999, limiter.checkAll(both).rows().get(0).remaining());
    assertTrue(limiter.peekAll(both).allowed());
    assertTrue(limiter.checkEach(both).allowed());
    assertTrue(limiter.await(item, Duration.ofSeconds(1)).allowed());
    Rule one = Rule.lease("one", 1, Duration.ofMinutes(1));
    try (Lease lease = limiter.lease(one.of("a"))) {
      assertTrue(lease.renew());
      assertThrows(DeniedException.class, () -> limiter.lease(one.of("a")));
    }
    limiter.lease(one.of("a")).close();
  }

  @Test
  void decides_the_calls_of_many_threads_once_each() throws Exception {
    Rule hot = Rule.gcra("hot", 500, 1, Duration.ofDays(1));
    ExecutorService threads = Executors.newFixedThreadPool(16);
    try (Server server = Server.withModule();
        Limiter limiter = limiter(server.uri(), PATIENT)) {
      limiter.ready();
      List<Future<Integer>> all = new ArrayList<>();
      for (int thread = 0; thread < 16; thread++) {
        all.add(
            threads.submit(
                () -> {
                  int allowed = 0;
                  for (int at = 0; at < 100; at++) {
                    Decision d = limiter.check(hot.of("a"));
                    assertEquals(Source.SERVER, d.source());
                    allowed += d.allowed() ? 1 : 0;
                  }
                  return allowed;
                }));
      }
      int allowed = 0;
      for (Future<Integer> one : all) {
        allowed += one.get();
      }
      assertEquals(500, allowed);
      assertEquals(1100, limiter.counters().denied());
    } finally {
      threads.shutdownNow();
    }
  }

  @Test
  void counts_a_call_once_whose_reply_is_lost() {
    try (Server server = Server.withModule();
        Proxy proxy = new Proxy(server.port);
        Limiter limiter = limiter(proxy.uri(), PATIENT)) {
      assertEquals(999, limiter.check(API.of("a")).remaining());
      proxy.loses.set(true);
      assertEquals(Reason.CONNECTION, limiter.check(API.of("a")).reason());
      Decision d = limiter.check(API.of("a"));
      assertEquals(Source.SERVER, d.source());
      assertEquals(997, d.remaining());
    }
  }

  @Test
  void replaces_a_connection_that_closed_while_idle() {
    try (Server server = Server.withModule();
        Limiter limiter = limiter(server.uri(), PATIENT)) {
      limiter.check(API.of("a"));
      server.send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      // The driver may learn of it after the next call has begun: that call is lost, the next not.
      Server.await("a decision", () -> limiter.check(API.of("a")).source() == Source.SERVER);
    }
  }

  @Test
  void says_that_a_command_on_a_closed_connection_was_not_sent() {
    try (Server server = Server.withModule()) {
      LettuceConnector connector = LettuceConnector.of(Server.CLIENT, server.uri());
      Connection connection = connector.connect(null, PATIENT).toCompletableFuture().join();
      server.send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      Server.await(
          "the command is rejected",
          () -> thrownBy(connection.send(List.of("PING"))) instanceof NotSentException);
      connection.close();
      assertInstanceOf(NotSentException.class, thrownBy(connection.send(List.of("PING"))));
      connector.close();
    }
  }

  private static Throwable thrownBy(CompletionStage<Object> sent) {
    return sent.handle((reply, error) -> error).toCompletableFuture().join();
  }

  @Test
  void heals_behind_a_silent_proxy_and_a_demoted_primary() {
    try (Server server = Server.withModule();
        Server other = Server.withModule();
        Proxy proxy = new Proxy(server.port);
        Limiter limiter = limiter(proxy.uri(), Duration.ofMillis(300))) {
      Server.await("a decision", () -> limiter.check(API.of("a")).source() == Source.SERVER);
      proxy.isSilent = true;
      assertEquals(Reason.TIMEOUT, limiter.check(API.of("a")).reason());
      proxy.isSilent = false;
      Server.await("a decision", () -> limiter.check(API.of("a")).source() == Source.SERVER);
      server.send("REPLICAOF", "127.0.0.1", Integer.toString(other.port));
      proxy.target = other.port;
      Server.await(
          "a refusal or a decision of the other",
          () -> limiter.check(API.of("b")).source() == Source.SERVER);
      assertTrue(Integer.parseInt(other.send("EXISTS", "rl:api:b")) == 1);
    }
  }

  @Test
  void throws_a_rejection_for_a_wrong_password() {
    try (Server server = Server.withModule("--requirepass", "secret")) {
      RedisURI uri = RedisURI.builder(server.uri()).withPassword("wrong".toCharArray()).build();
      // The driver sometimes reports only that it closed the connection.
      for (int dial = 0; dial < 200; dial++) {
        try (Limiter limiter = limiter(uri, PATIENT)) {
          CommandRejectedException thrown =
              assertThrows(CommandRejectedException.class, () -> limiter.charge(API.of("a")));
          assertEquals("WRONGPASS", thrown.kind());
        }
      }
    }
  }

  @Test
  void needs_no_right_to_ping() {
    try (Server server = Server.withModule()) {
      server.send("ACL", "SETUSER", "app", "on", ">pass", "~rl:*", "+rl.gcra", "+hello");
      RedisURI uri = RedisURI.create("redis://app:pass@127.0.0.1:" + server.port);
      try (Limiter limiter = limiter(uri, PATIENT)) {
        assertEquals(Source.SERVER, limiter.check(API.of("a")).source());
      }
    }
  }

  @Test
  void leaves_no_thread_and_no_connection_after_close() {
    try (Server server = Server.withModule()) {
      Limiter limiter = limiter(server.uri(), PATIENT);
      limiter.check(API.of("a"));
      limiter.lease(Rule.lease("jobs", 9, Duration.ofSeconds(60)).of("t"));
      limiter.close();
      limiter.close();
      assertThrows(IllegalStateException.class, () -> limiter.check(API.of("a")));
      Server.await(
          "the limiter's threads end",
          () ->
              Thread.getAllStackTraces().keySet().stream()
                  .noneMatch(thread -> thread.getName().equals("redis-throttle")));
      Server.await(
          "the connections close",
          () -> server.send("CLIENT", "LIST").trim().split("\n").length == 1);
    }
  }
}
