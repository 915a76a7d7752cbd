package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Runs the blocking methods and their asynchronous forms, over a connection in memory. */
@Timeout(30)
class EntryTest {
  private static final Rule API = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));
  private static final Rule JOBS = Rule.lease("jobs", 3, Duration.ofMinutes(1));

  private static MemoryServer memory(Function<List<String>, CompletionStage<Object>> handler) {
    return new MemoryServer(List.of(), (node, words) -> handler.apply(words));
  }

  private static LimiterBuilder builder(Connector connector) {
    return Limiter.builder(connector).timeout(Duration.ofSeconds(10));
  }

  /** The methods that return at once. The others of the limiter wait for the server. */
  private static final Set<String> AT_ONCE =
      Set.of("giveBack", "assertDecides", "onDecision", "counters", "openBreakers", "builder");

  @Test
  void every_blocking_method_has_an_asynchronous_form() throws Exception {
    int count = 0;
    for (Method method : Limiter.class.getDeclaredMethods()) {
      String name = method.getName();
      boolean isOther = AT_ONCE.contains(name) || name.endsWith("Async");
      if (isOther || method.isSynthetic() || !Modifier.isPublic(method.getModifiers())) {
        continue;
      }
      Method async = Limiter.class.getMethod(name + "Async", method.getParameterTypes());
      assertEquals(CompletionStage.class, async.getReturnType(), method.toString());
      count++;
    }
    assertTrue(count >= 26, count + " methods");
  }

  @Test
  void the_asynchronous_forms_send_what_the_blocking_methods_send() throws Exception {
    MemoryServer memory =
        memory(
            words ->
                switch (words.get(0)) {
                  case "DEL", "RL.RELEASE", "RL.CANCEL" -> MemoryServer.reply(1L);
                  case "RL.BLOCK" -> MemoryServer.reply("OK");
                  case "RL.ALL", "RL.PEEKALL" ->
                      MemoryServer.reply(List.of(1L, 10L, 9L, 0L, 6000L, 1L, MemoryServer.ALLOWED));
                  default -> MemoryServer.reply(MemoryServer.ALLOWED);
                });
    Item item = API.of("a");
    Item day = Rule.fixed("day", 10, Duration.ofDays(1)).of("a").reserve(1);
    try (Limiter limiter = builder(memory).build()) {
      List<CompletionStage<?>> all =
          List.of(
              limiter.readyAsync(),
              limiter.checkAsync(item),
              limiter.peekAsync(item),
              limiter.chargeAsync(item),
              limiter.refundAsync(item),
              limiter.forgetAsync(item),
              limiter.blockAsync(item, Duration.ofMinutes(1)),
              limiter.checkEachAsync(List.of(item)),
              limiter.awaitAsync(item, Duration.ofMinutes(1)),
              limiter.leaseAsync(JOBS.of("a")),
              limiter.checkAllAsync(List.of(item)),
              limiter.peekAllAsync(List.of(item)),
              limiter.admitAsync(List.of(item)),
              limiter.reserveAsync(day));
      for (CompletionStage<?> one : all) {
        assertNotNull(one.toCompletableFuture().get());
      }
    }
  }

  private static String printed(Throwable thrown) {
    StringWriter text = new StringWriter();
    thrown.printStackTrace(new PrintWriter(text));
    return text.toString();
  }

  /** Runs a call that throws, and returns the exception, which names this method's line. */
  private static <T extends Throwable> T thrownHere(Class<T> type, Executable call) {
    T thrown = assertThrows(type, call);
    boolean isHere =
        Arrays.stream(thrown.getStackTrace())
            .anyMatch(frame -> frame.getClassName().equals(EntryTest.class.getName()));
    assertTrue(isHere, printed(thrown));
    return thrown;
  }

  @Test
  void an_exception_has_the_stack_trace_of_the_caller() {
    MemoryServer memory =
        memory(
            words ->
                switch (words.get(0)) {
                  case "RL.LEASE" -> MemoryServer.reply(List.of(0L, 3L, 0L, 60_000L, 60_000L));
                  case "RL.CHARGE" -> MemoryServer.error("OOM no memory");
                  default -> MemoryServer.error("WRONGTYPE another type");
                });
    Limiter limiter = builder(memory).build();
    Item item = API.of("ada");
    thrownHere(DeniedException.class, () -> limiter.lease(JOBS.of("ada")));
    assertEquals(
        Reason.SERVER, thrownHere(UnavailableException.class, () -> limiter.charge(item)).reason());
    for (Executable call :
        List.<Executable>of(() -> limiter.check(item), () -> limiter.refund(item))) {
      CommandRejectedException rejected = thrownHere(CommandRejectedException.class, call);
      assertEquals("WRONGTYPE another type [api: GCRA 10 10 60]", rejected.getMessage());
      assertEquals("WRONGTYPE", rejected.kind());
    }
    limiter.close();
    thrownHere(IllegalStateException.class, () -> limiter.check(item));
  }

  @Test
  void a_call_without_a_server_says_not_sent_once_with_a_stack_trace() {
    CompletableFuture<Connection> dial = new CompletableFuture<>();
    Item item = API.of("ada");
    try (Limiter limiter = builder((node, timeout) -> dial).build()) {
      CompletionStage<Decision> first = limiter.chargeAsync(item);
      dial.completeExceptionally(new IOException("connection refused"));
      Throwable thrown =
          assertThrows(ExecutionException.class, () -> first.toCompletableFuture().get())
              .getCause();
      assertEquals("not sent: connection refused", thrown.getMessage());
      assertEquals(2, printed(thrown).split("not sent", -1).length, printed(thrown));
      assertTrue(thrown.getCause() instanceof IOException, printed(thrown));
      assertTrue(thrown.getStackTrace().length > 0);
      UnavailableException second =
          thrownHere(UnavailableException.class, () -> limiter.charge(item));
      assertFalse(second.mayHaveRun());
      // A decision's error is not thrown. It would cost more than the call.
      assertEquals(0, limiter.check(item).error().getStackTrace().length);
    }
  }

  @Test
  void check_blocks_until_the_reply_and_takes_an_async_call_alike() throws Exception {
    try (Limiter limiter =
        builder(memory(words -> MemoryServer.reply(MemoryServer.ALLOWED))).build()) {
      assertEquals(9, limiter.check(API.of("a")).remaining());
      CompletableFuture<Decision> async = limiter.checkAsync(API.of("a")).toCompletableFuture();
      assertEquals(9, async.get().remaining());
      assertEquals(2, limiter.counters().allowed());
    }
  }

  @Test
  void an_interrupted_thread_leaves_no_lease_behind() throws Exception {
    CountDownLatch arrived = new CountDownLatch(1);
    CompletableFuture<Object> late = new CompletableFuture<>();
    MemoryServer memory =
        memory(
            words -> {
              if (words.get(0).equals("RL.LEASE")) {
                arrived.countDown();
                return late;
              }
              return MemoryServer.reply(1L);
            });
    try (Limiter limiter = builder(memory).build()) {
      AtomicReference<Throwable> thrown = new AtomicReference<>();
      AtomicReference<Boolean> flag = new AtomicReference<>();
      Thread thread =
          new Thread(
              () -> {
                try {
                  limiter.lease(JOBS.of("a"), CallOptions.NONE.withId("h1"));
                } catch (CallInterruptedException e) {
                  thrown.set(e);
                }
                flag.set(Thread.currentThread().isInterrupted());
              });
      thread.start();
      arrived.await();
      thread.interrupt();
      thread.join();
      assertNotNull(thrown.get());
      assertTrue(flag.get());
      late.complete(List.of(1L, 3L, 2L, 0L, 60_000L));
      assertTrue(memory.sent.contains("server RL.RELEASE rl:jobs:a h1"), memory.sent.toString());
    }
  }

  @Test
  void an_interrupted_thread_sends_nothing() {
    MemoryServer memory = memory(words -> MemoryServer.reply(MemoryServer.ALLOWED));
    try (Limiter limiter = builder(memory).build()) {
      Thread.currentThread().interrupt();
      assertThrows(CallInterruptedException.class, () -> limiter.check(API.of("a")));
      assertTrue(Thread.interrupted());
      assertTrue(memory.sent.isEmpty());
    }
  }

  @Test
  void close_of_a_lease_sends_its_release_on_an_interrupted_thread() {
    MemoryServer memory =
        memory(
            words ->
                MemoryServer.reply(
                    words.get(0).equals("RL.LEASE") ? List.of(1L, 3L, 2L, 0L, 1L) : 1L));
    try (Limiter limiter = builder(memory).build()) {
      Lease lease = limiter.lease(JOBS.of("a"), CallOptions.NONE.withId("h1"));
      assertTrue(lease.isHeld());
      Thread.currentThread().interrupt();
      lease.close();
      assertTrue(Thread.interrupted());
      assertFalse(lease.isHeld());
      assertTrue(memory.sent.contains("server RL.RELEASE rl:jobs:a h1"));
    }
  }

  @Test
  void a_hook_that_blocks_on_the_limiter_gets_an_exception() {
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    AtomicReference<Integer> breakers = new AtomicReference<>();
    try (Limiter limiter =
        builder(memory(words -> MemoryServer.reply(MemoryServer.ALLOWED))).build()) {
      limiter.onDecision(
          event -> {
            breakers.set(limiter.openBreakers());
            thrown.set(assertThrows(IllegalStateException.class, () -> limiter.check(API.of("b"))));
          });
      assertTrue(limiter.check(API.of("a")).allowed());
      assertNotNull(thrown.get());
      assertEquals(0, breakers.get());
      assertEquals(0, limiter.openBreakers());
    }
  }
}
