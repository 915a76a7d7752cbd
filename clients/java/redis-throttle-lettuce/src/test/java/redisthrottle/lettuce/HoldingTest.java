package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import redisthrottle.Admission;
import redisthrottle.CallInterruptedException;
import redisthrottle.CallOptions;
import redisthrottle.Decision;
import redisthrottle.Item;
import redisthrottle.Lease;
import redisthrottle.Limiter;
import redisthrottle.LimiterBuilder;
import redisthrottle.Rule;
import redisthrottle.Source;

/** Runs against a real server, on which nothing may stay held. */
class HoldingTest {
  private static final Duration PATIENT = Duration.ofMinutes(1);
  private static final Rule JOBS = Rule.lease("jobs", 1000, Duration.ofMinutes(1));
  private static final Rule MONTH = Rule.fixed("month", 1000, Duration.ofDays(30));
  private static final List<Item> BOTH = List.of(JOBS.of("t"), MONTH.of("t").reserve(1));

  private static LimiterBuilder builder(RedisURI uri) {
    return Limiter.builder(LettuceConnector.of(Server.CLIENT, uri)).timeout(PATIENT);
  }

  private static void awaitNothingHeld(Limiter limiter) {
    Server.await(
        "nothing is held",
        () ->
            limiter.peek(JOBS.of("t")).remaining() >= 999
                && limiter.peek(MONTH.of("t").cost(0)).remaining() == 1000);
  }

  @Test
  void holds_nothing_after_callers_cancel_at_any_moment() {
    try (Server server = Server.withModule();
        Limiter limiter = builder(server.uri()).build()) {
      limiter.ready();
      for (int at = 0; at < 200; at++) {
        CompletableFuture<Lease> lease =
            limiter.leaseAsync(JOBS.of("t"), CallOptions.NONE).toCompletableFuture();
        CompletableFuture<Admission> admission =
            limiter.admitAsync(BOTH, CallOptions.NONE).toCompletableFuture();
        LockSupport.parkNanos(at * 2_000L);
        if (!lease.cancel(true)) {
          lease.join().close();
        }
        if (!admission.cancel(true)) {
          admission.join().close();
        }
      }
      awaitNothingHeld(limiter);
    }
  }

  @Test
  void holds_nothing_after_threads_are_interrupted_at_any_moment() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try (Server server = Server.withModule();
        Limiter limiter = builder(server.uri()).build()) {
      limiter.ready();
      List<CompletableFuture<Void>> ends = new ArrayList<>();
      for (int at = 0; at < 200; at++) {
        CompletableFuture<Void> end = new CompletableFuture<>();
        Future<?> work =
            threads.submit(
                () -> {
                  try (Lease lease = limiter.lease(JOBS.of("t"));
                      Admission admission = limiter.admit(BOTH)) {
                    assertTrue(lease.isHeld() && admission.isHeld());
                  } catch (CallInterruptedException e) {
                    assertTrue(Thread.interrupted());
                  } catch (RuntimeException | Error e) {
                    end.completeExceptionally(e);
                  }
                  end.complete(null);
                });
        LockSupport.parkNanos(at * 2_000L);
        if (!work.cancel(true)) {
          ends.add(end);
        }
      }
      threads.shutdown();
      assertTrue(threads.awaitTermination(1, TimeUnit.MINUTES));
      ends.forEach(CompletableFuture::join);
      awaitNothingHeld(limiter);
    } finally {
      threads.shutdownNow();
    }
  }

  @Test
  void holds_nothing_after_replies_are_lost() {
    try (Server server = Server.withModule();
        Proxy proxy = new Proxy(server.port);
        Limiter limiter = builder(proxy.uri()).breaker(1000, Duration.ofMillis(20)).build()) {
      for (int at = 0; at < 20; at++) {
        proxy.loses.set(at % 4 == 0);
        try (Admission admission = limiter.admit(BOTH)) {
          proxy.loses.set(at % 4 == 1);
          admission.settle(MONTH, 0);
        }
        proxy.loses.set(false);
      }
      awaitNothingHeld(limiter);
    }
  }

  @Test
  void keeps_no_place_after_replies_are_cut() {
    Rule day = Rule.fixed("cut", 1000, Duration.ofDays(1));
    try (Server server = Server.withModule();
        Proxy proxy = new Proxy(server.port);
        Limiter limiter =
            builder(proxy.uri()).maxInFlight(2).breaker(1000, Duration.ofMillis(20)).build()) {
      limiter.ready();
      for (int at = 0; at < 20; at++) {
        proxy.cuts.set(true);
        CompletableFuture<Decision> cut = limiter.checkAsync(day.of("a")).toCompletableFuture();
        CompletableFuture<Decision> next = limiter.checkAsync(day.of("a")).toCompletableFuture();
        cut.join();
        next.join();
        proxy.cuts.set(false);
        Server.await("a decision", () -> limiter.check(day.of("a")).source() == Source.SERVER);
      }
    }
  }

  @Test
  void keeps_no_place_after_callers_cancel_at_any_moment() {
    Rule day = Rule.fixed("cancelled", 100, Duration.ofDays(1));
    try (Server server = Server.withModule();
        Limiter limiter = builder(server.uri()).maxInFlight(4).build()) {
      limiter.ready();
      int allowed = 0;
      for (int at = 0; at < 2000; at++) {
        CompletableFuture<Decision> left = limiter.checkAsync(day.of("a")).toCompletableFuture();
        LockSupport.parkNanos(at % 100 * 1000L);
        left.cancel(true);
        if (at % 20 == 0 && limiter.check(day.of("a")).allowed()) {
          allowed++;
        }
      }
      assertTrue(allowed <= 100);
      assertFalse(limiter.check(day.of("a")).allowed());
      assertEquals(0, limiter.counters().degraded());
    }
  }

  @Test
  void close_ends_the_calls_of_20_busy_threads() throws Exception {
    Rule hot = Rule.fixed("hot", 100_000, Duration.ofHours(1)).prefetch(10);
    try (Server server = Server.withModule()) {
      for (int round = 0; round < 5; round++) {
        Limiter limiter = builder(server.uri()).build();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < 20; at++) {
          Thread thread = new Thread(() -> callUntilClosed(limiter, hot));
          thread.start();
          threads.add(thread);
        }
        LockSupport.parkNanos(10_000_000);
        limiter.close();
        for (Thread thread : threads) {
          thread.join(60_000);
          assertFalse(thread.isAlive(), "a caller waits for ever");
        }
      }
      Server.await(
          "the connections close",
          () -> server.send("CLIENT", "LIST").trim().split("\n").length == 1);
    }
  }

  @Test
  void close_of_thousands_of_leases_and_permits_takes_one_timeout_at_a_silent_server() {
    int each = 3000;
    Rule many = Rule.lease("many", each, Duration.ofMinutes(1));
    Rule hot = Rule.fixed("hot", 10, Duration.ofHours(1)).prefetch(5);
    try (Server server = Server.withModule();
        Proxy proxy = new Proxy(server.port)) {
      Limiter limiter =
          Limiter.builder(LettuceConnector.of(Server.CLIENT, proxy.uri()))
              .timeout(Duration.ofSeconds(2))
              .build();
      limiter.ready();
      List<Lease> leases = new ArrayList<>();
      for (int at = 0; at < each; at++) {
        String subject = Integer.toString(at);
        limiter.check(hot.of(subject));
        leases.add(limiter.lease(many.of("t")));
      }
      proxy.isSilent = true;
      long begin = System.nanoTime();
      limiter.close();
      Duration took = Duration.ofNanos(System.nanoTime() - begin);
      assertTrue(took.toMillis() < 4000, "the end took " + took);
      assertEquals(each, limiter.counters().unsettled());
      assertTrue(leases.stream().noneMatch(Lease::isHeld));
    }
  }

  @Test
  void close_gives_thousands_of_permits_back() {
    int keys = 3000;
    Rule hot = Rule.fixed("back", 10, Duration.ofHours(1)).prefetch(5);
    try (Server server = Server.withModule();
        Limiter other = builder(server.uri()).build()) {
      Limiter limiter = builder(server.uri()).build();
      limiter.ready();
      for (int at = 0; at < keys; at++) {
        assertTrue(limiter.check(hot.of(Integer.toString(at))).allowed());
      }
      limiter.close();
      for (int at = 0; at < keys; at++) {
        assertEquals(8, other.peek(hot.of(Integer.toString(at))).remaining());
      }
    }
  }

  private static void callUntilClosed(Limiter limiter, Rule hot) {
    try {
      while (true) {
        limiter.check(hot.of("a"));
        limiter.lease(JOBS.of("t")).close();
      }
    } catch (IllegalStateException e) {
      // The limiter is closed.
    }
  }
}
