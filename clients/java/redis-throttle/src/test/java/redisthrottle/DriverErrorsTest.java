package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static redisthrottle.MemoryServer.ALLOWED;
import static redisthrottle.MemoryServer.reply;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Runs calls whose driver or executor throws. */
@Timeout(30)
class DriverErrorsTest {
  private static final long MS = 1_000_000;
  private static final Rule API = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));
  private static final Rule JOBS = Rule.lease("jobs", 3, Duration.ofMinutes(1));

  private final ManualClock clock = new ManualClock();
  private final AtomicBoolean isFailing = new AtomicBoolean();
  private final MemoryServer server =
      new MemoryServer(
          List.of(),
          (node, words) -> {
            if (isFailing.get()) {
              throw new OutOfMemoryError("of a test");
            }
            return reply(ALLOWED);
          });

  private LimiterBuilder frozen() {
    return new LimiterBuilder(server, clock::view, Runnable::run).jitter(() -> 1);
  }

  private static Decision check(Limiter limiter, String subject) {
    CompletableFuture<Decision> call = limiter.checkAsync(API.of(subject)).toCompletableFuture();
    assertTrue(call.isDone(), "the call waits");
    return call.join();
  }

  @Test
  void an_error_of_the_driver_keeps_no_place() {
    Limiter limiter = frozen().maxInFlight(1).build();
    isFailing.set(true);
    for (int call = 0; call < 3; call++) {
      assertEquals(Reason.CONNECTION, check(limiter, "a").reason());
    }
    isFailing.set(false);
    assertEquals(Source.SERVER, check(limiter, "a").source());
  }

  @Test
  void an_error_of_the_driver_does_not_keep_the_breaker_open() {
    Limiter limiter = frozen().breaker(1, Duration.ofMillis(100)).build();
    server.handler = (node, words) -> CompletableFuture.failedFuture(new IOException("lost"));
    assertEquals(Reason.CONNECTION, check(limiter, "a").reason());
    assertEquals(Reason.CIRCUIT, check(limiter, "a").reason());
    server.handler =
        (node, words) -> {
          throw new OutOfMemoryError("of a test");
        };
    clock.runUntil(clock.nanos() + 100 * MS);
    assertEquals(Reason.CONNECTION, check(limiter, "a").reason());
    server.handler = (node, words) -> reply(ALLOWED);
    clock.runUntil(clock.nanos() + 100 * MS);
    assertEquals(Source.SERVER, check(limiter, "a").source());
  }

  @Test
  void an_error_of_the_driver_keeps_no_slot_of_the_ends() {
    Limiter limiter = frozen().breaker(1000, Duration.ofMillis(100)).build();
    List<Lease> leases = new ArrayList<>();
    for (int at = 0; at < 10; at++) {
      CallOptions named = CallOptions.NONE.withId("h" + at);
      leases.add(limiter.leaseAsync(JOBS.of("a"), named).toCompletableFuture().join());
    }
    isFailing.set(true);
    leases.forEach(Lease::releaseAsync);
    isFailing.set(false);
    server.handler = (node, words) -> reply(1L);
    server.sent.clear();
    clock.runUntil(clock.nanos() + 200 * MS);
    assertEquals(10, server.sent.stream().filter(one -> one.contains("RL.RELEASE")).count());
  }

  @Test
  void close_ends_although_the_driver_does_not_close() {
    Limiter limiter = Limiter.builder(server).build();
    assertTrue(limiter.check(API.of("a")).allowed());
    AtomicInteger closed = new AtomicInteger();
    server.onClose =
        () -> {
          closed.incrementAndGet();
          throw new OutOfMemoryError("of a test");
        };
    limiter.close();
    assertEquals(2, closed.get());
  }

  @Test
  void delivers_a_result_that_the_executor_has_no_thread_for() throws Exception {
    LimiterBuilder builder = Limiter.builder(server);
    builder.executor(
        act -> {
          throw new OutOfMemoryError("unable to create native thread");
        });
    try (Limiter limiter = builder.build()) {
      assertTrue(limiter.checkAsync(API.of("a")).toCompletableFuture().get().allowed());
    }
  }

  @Test
  void keeps_a_lease_whose_executor_delivers_it_and_throws() throws Exception {
    LimiterBuilder builder = Limiter.builder(server);
    builder.executor(
        act -> {
          act.run();
          throw new OutOfMemoryError("unable to create native thread");
        });
    try (Limiter limiter = builder.build()) {
      Lease lease = limiter.leaseAsync(JOBS.of("a"), CallOptions.NONE).toCompletableFuture().get();
      limiter.peek(API.of("a"));
      assertTrue(lease.isHeld());
    }
  }
}
