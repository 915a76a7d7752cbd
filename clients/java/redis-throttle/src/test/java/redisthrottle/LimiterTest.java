package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static redisthrottle.MemoryServer.ALLOWED;
import static redisthrottle.MemoryServer.notSent;
import static redisthrottle.MemoryServer.reply;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Runs calls, invalid arguments, odd replies and closing, over a connection in memory. */
@Timeout(30)
class LimiterTest {
  private static final Rule API = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));
  private static final Rule JOBS = Rule.lease("jobs", 3, Duration.ofMinutes(1));

  private static MemoryServer memory(Function<List<String>, CompletionStage<Object>> handler) {
    return new MemoryServer(List.of(), (node, words) -> handler.apply(words));
  }

  private static LimiterBuilder builder(Connector connector) {
    return Limiter.builder(connector).timeout(Duration.ofSeconds(10));
  }

  @Test
  void checks_each_of_thousands_without_a_reply() {
    FakeServer server = new FakeServer();
    server.goAway();
    Item last = Rule.gcra("last", 1, 1, Duration.ofMinutes(1)).onError(OnError.DENY).of("ada");
    List<Item> items = new ArrayList<>(Collections.nCopies(20_000, API.of("ada")));
    try (Limiter limiter = server.limiter().build()) {
      assertTrue(limiter.checkEach(items).allowed());
      items.add(last);
      assertFalse(limiter.checkEach(items).allowed());
    }
  }

  @Test
  void delivers_results_without_the_executor() throws Exception {
    MemoryServer server = memory(words -> reply(ALLOWED));
    ExecutorService ended = Executors.newSingleThreadExecutor();
    ended.shutdown();
    try (Limiter limiter = builder(server).executor(ended).build()) {
      assertTrue(limiter.checkAsync(API.of("ada")).toCompletableFuture().get().allowed());
    }
  }

  @Test
  void ready_waits_five_seconds_or_the_timeout_if_that_is_longer() {
    ManualClock clock = new ManualClock();
    for (long timeoutMs : List.of(100L, 7000L)) {
      MemoryServer memory = memory(words -> reply(ALLOWED));
      CompletableFuture<Void> dial = new CompletableFuture<>();
      memory.dialling.put("server", dial);
      LimiterBuilder builder = new LimiterBuilder(memory, clock::view, Runnable::run);
      builder.timeout(Duration.ofMillis(timeoutMs)).silence(Duration.ofMillis(100));
      Limiter limiter = builder.build();
      long endsMs = clock.nanos() / 1_000_000 + Math.max(5000, timeoutMs);
      CompletableFuture<Backend> ready = limiter.readyAsync().toCompletableFuture();
      CompletableFuture<Backend> late = limiter.readyAsync().toCompletableFuture();
      clock.runUntil((endsMs - 200) * 1_000_000);
      memory.handler =
          (node, words) -> memory.sent.size() == 1 ? reply(ALLOWED) : new CompletableFuture<>();
      dial.complete(null);
      assertEquals(Backend.MODULE, ready.getNow(null));
      clock.runUntil(endsMs * 1_000_000 - 1);
      assertFalse(late.isDone());
      clock.runUntil(endsMs * 1_000_000);
      assertTrue(late.isDone());
      CompletionException thrown = assertThrows(CompletionException.class, late::join);
      assertEquals(Reason.TIMEOUT, ((UnavailableException) thrown.getCause()).reason());
      String text = String.valueOf(thrown.getCause().getMessage());
      assertTrue(text.contains("connected, logged in, no reply to RL.PEEK"), text);
    }
  }

  @Test
  void ready_says_that_the_server_was_not_reached() {
    ManualClock clock = new ManualClock();
    MemoryServer memory = memory(words -> reply(ALLOWED));
    memory.dialling.put("server", new CompletableFuture<>());
    Limiter limiter = new LimiterBuilder(memory, clock::view, Runnable::run).build();
    CompletableFuture<Backend> ready = limiter.readyAsync().toCompletableFuture();
    clock.runUntil(5_000_000_000L);
    assertTrue(ready.isDone());
    CompletionException thrown = assertThrows(CompletionException.class, ready::join);
    assertEquals(Reason.CONNECTION, ((UnavailableException) thrown.getCause()).reason());
    String text = String.valueOf(thrown.getCause().getMessage());
    assertTrue(text.startsWith("not sent: not connected and logged in"), text);
  }

  @Test
  void a_thread_runs_the_tasks_of_others_for_some_time_only() {
    Loop loop = new Loop(Clock.system());
    Runnable[] again = {() -> {}};
    again[0] = () -> loop.execute(again[0]);
    // Without an end of the tasks this would never return.
    loop.execute(again[0]);
    CompletableFuture<Boolean> last = new CompletableFuture<>();
    loop.after(1_000_000, () -> last.complete(true));
    assertTrue(last.join());
    again[0] = () -> {};
    loop.close();
  }

  @Test
  void an_odd_reply_is_a_rejection_under_every_on_error() {
    List<Object> odd = new ArrayList<>();
    odd.add(null);
    odd.add("OK");
    odd.add(1L);
    odd.add(List.of());
    odd.add(List.of(1L, 2L, 3L, 4L));
    odd.add(List.of(1L, 2L, 3L, 4L, "5"));
    odd.add(List.of(2L, 10L, 9L, 0L, 6000L));
    odd.add(List.of(1L, 10L, 9L, -2L, 6000L));
    odd.add(Arrays.asList(1L, null, 9L, 0L, 6000L));
    MemoryServer memory = memory(words -> reply(null));
    try (Limiter limiter = builder(memory).build()) {
      for (Object one : odd) {
        memory.handler = (node, words) -> reply(one);
        CommandRejectedException thrown =
            assertThrows(CommandRejectedException.class, () -> limiter.check(API.of("a")));
        assertEquals("PROTOCOL", thrown.kind());
      }
      memory.handler = (node, words) -> reply(List.of(1L, 10L, Long.MAX_VALUE, Long.MAX_VALUE, 0L));
      assertTrue(limiter.check(API.of("a")).never());
      assertEquals(odd.size(), limiter.counters().rejected());
    }
  }

  @Test
  void a_reply_of_a_cluster_to_a_client_of_one_server_names_the_cluster_client() {
    for (String kind : List.of("MOVED", "ASK")) {
      String reply = kind + " 42 127.0.0.1:7001";
      MemoryServer memory = memory(words -> MemoryServer.error(reply));
      try (Limiter limiter = builder(memory).breaker(1, Duration.ofHours(1)).build()) {
        CommandRejectedException thrown =
            assertThrows(CommandRejectedException.class, () -> limiter.check(API.of("a")));
        assertEquals(kind, thrown.kind());
        assertEquals(
            "the server is a node of a cluster: use the cluster client ("
                + reply
                + ") [api: GCRA 10 10 60]",
            thrown.getMessage());
        assertEquals(1, memory.sent.size());
        assertEquals(0, limiter.openBreakers());
      }
    }
  }

  @Test
  void a_driver_that_throws_is_a_lost_connection() {
    MemoryServer memory =
        memory(
            words -> {
              throw new IllegalStateException("a bug of the driver");
            });
    try (Limiter limiter = builder(memory).build()) {
      assertEquals(Reason.CONNECTION, limiter.check(API.of("a")).reason());
    }
  }

  @Test
  void a_command_that_was_not_sent_is_sent_once_over_the_next_connection() {
    MemoryServer memory = memory(words -> reply(ALLOWED));
    try (Limiter limiter = builder(memory).build()) {
      limiter.check(API.of("a"));
      memory.sent.clear();
      memory.handler = (node, words) -> memory.sent.size() == 1 ? notSent() : reply(ALLOWED);
      assertEquals(Source.SERVER, limiter.check(API.of("a")).source());
      assertEquals(2, memory.sent.size());
      memory.sent.clear();
      memory.handler = (node, words) -> notSent();
      UnavailableException thrown =
          assertThrows(UnavailableException.class, () -> limiter.charge(API.of("a")));
      assertEquals(Reason.CONNECTION, thrown.reason());
      assertFalse(thrown.mayHaveRun());
      assertEquals(2, memory.sent.size());
    }
  }

  @Test
  void check_takes_no_lease_and_lease_no_other_rule() {
    try (Limiter limiter = builder(memory(words -> reply(ALLOWED))).build()) {
      assertThrows(InvalidArgumentException.class, () -> limiter.check(JOBS.of("a")));
      assertThrows(InvalidArgumentException.class, () -> limiter.lease(API.of("a")));
      List<Item> items = Arrays.asList(API.of("a"), null);
      assertThrows(InvalidArgumentException.class, () -> limiter.checkAll(items));
    }
  }

  @Test
  void a_reservation_whose_caller_cancels_is_cancelled_when_its_reply_arrives() {
    CompletableFuture<Object> late = new CompletableFuture<>();
    MemoryServer memory = memory(words -> words.get(0).equals("RL.ALL") ? late : reply(ALLOWED));
    Item day = Rule.fixed("day", 10, Duration.ofDays(1)).of("a").reserve(4);
    try (Limiter limiter = builder(memory).build()) {
      CompletionStage<Reservation> reserved = limiter.reserveAsync(day);
      reserved.toCompletableFuture().cancel(true);
      late.complete(List.of(1L, 10L, 6L, 0L, 6000L, 1L, List.of(1L, 10L, 6L, 0L, 6000L)));
      // Before the end of the limiter, which cancels it in any case.
      List<String> sent = List.copyOf(memory.sent);
      assertTrue(sent.get(1).startsWith("server RL.CANCEL rl:day:a"), sent.toString());
    }
  }

  @Test
  void close_ends_calls_without_a_reply_after_the_timeout_and_the_thread() throws Exception {
    MemoryServer memory = memory(words -> new CompletableFuture<>());
    LimiterBuilder builder = builder(memory).timeout(Duration.ofMillis(50));
    Limiter limiter = builder.onError(OnError.DENY).build();
    CompletableFuture<Decision> pending = limiter.checkAsync(API.of("a")).toCompletableFuture();
    CompletableFuture<Decision> waiting =
        limiter.awaitAsync(API.of("a"), Duration.ofDays(1), CallOptions.NONE).toCompletableFuture();
    limiter.close();
    assertEquals(Source.ERROR, pending.get().source());
    assertEquals(Source.ERROR, waiting.get().source());
    limiter.close();
    assertThrows(IllegalStateException.class, () -> limiter.check(API.of("a")));
    while (Thread.getAllStackTraces().keySet().stream()
        .anyMatch(thread -> thread.getName().equals("redis-throttle"))) {
      Thread.onSpinWait();
    }
  }

  @Test
  void close_ends_a_wait_between_two_checks() {
    MemoryServer memory = memory(words -> reply(List.of(0L, 10L, 0L, 60_000L, 60_000L)));
    Limiter limiter = builder(memory).build();
    CompletableFuture<Decision> waiting =
        limiter.awaitAsync(API.of("a"), Duration.ofDays(1), CallOptions.NONE).toCompletableFuture();
    limiter.close();
    ExecutionException thrown = assertThrows(ExecutionException.class, waiting::get);
    assertTrue(thrown.getCause() instanceof IllegalStateException);
  }

  @Test
  void a_hook_that_throws_is_logged_and_the_others_are_called() {
    List<Event> events = new ArrayList<>();
    LimiterBuilder builder =
        builder(memory(words -> reply(ALLOWED)))
            .onDecision(
                event -> {
                  throw new IllegalStateException("a bug of the hook");
                });
    try (Limiter limiter = builder.build()) {
      limiter.onDecision(events::add);
      assertTrue(limiter.check(API.of("a")).allowed());
      assertEquals(1, events.size());
    }
  }

  @Test
  void prefetch_spends_permits_of_one_call_in_many_threads() throws Exception {
    MemoryServer memory =
        memory(
            words -> {
              boolean isCheck = words.get(0).equals("RL.FIXED");
              return reply(isCheck ? List.of(10L, 100L, 90L, 0L, 60_000L) : ALLOWED);
            });
    Rule hot = Rule.fixed("hot", 100, Duration.ofMinutes(1)).prefetch(10);
    ExecutorService threads = Executors.newFixedThreadPool(8);
    try (Limiter limiter = builder(memory).build()) {
      List<CompletableFuture<Decision>> all = new ArrayList<>();
      for (int at = 0; at < 45; at++) {
        all.add(CompletableFuture.supplyAsync(() -> limiter.check(hot.of("a")), threads));
      }
      for (CompletableFuture<Decision> one : all) {
        assertTrue(one.get().allowed());
      }
      assertEquals(5, memory.sent.size());
    } finally {
      threads.shutdown();
    }
    assertTrue(memory.sent.contains("server RL.REFUND rl:hot:a FIXED 100 60 COST 5"));
  }
}
