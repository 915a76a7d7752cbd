package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static redisthrottle.MemoryServer.ALLOWED;
import static redisthrottle.MemoryServer.reply;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Runs calls whose hook or logger blocks. */
@Timeout(30)
class EventsTest {
  private static final Rule API = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));
  private static final Rule JOBS = Rule.lease("jobs", 3, Duration.ofMinutes(1));

  private final MemoryServer server = new MemoryServer(List.of(), (node, words) -> reply(ALLOWED));

  /** The hash of the first key, whose hooks block. */
  private volatile String firstKey;

  @Test
  void calls_go_on_while_a_hook_blocks() throws Exception {
    CountDownLatch blocked = new CountDownLatch(2);
    CountDownLatch release = new CountDownLatch(1);
    ExecutorService threads = Executors.newCachedThreadPool();
    LimiterBuilder builder = Limiter.builder(server).executor(threads);
    builder.onDecision(event -> block(event.keyHash(), blocked, release));
    try (Limiter limiter = builder.hmacSecret("a secret of the test").build()) {
      CompletableFuture<Decision> sync =
          CompletableFuture.supplyAsync(() -> limiter.check(API.of("slow")), threads);
      CompletableFuture<Decision> async = limiter.checkAsync(API.of("slow")).toCompletableFuture();
      blocked.await();
      for (int call = 0; call < 10; call++) {
        assertEquals(Source.SERVER, limiter.check(API.of("a")).source());
        assertEquals(
            Source.SERVER, limiter.checkAsync(API.of("a")).toCompletableFuture().get().source());
      }
      assertFalse(sync.isDone() || async.isDone());
      release.countDown();
      assertTrue(sync.get().allowed() && async.get().allowed());
    } finally {
      release.countDown();
      threads.shutdown();
    }
  }

  /** Blocks the hook of the first subject. */
  private void block(String keyHash, CountDownLatch blocked, CountDownLatch release) {
    if (firstKey == null) {
      firstKey = keyHash;
    }
    if (keyHash.equals(firstKey)) {
      blocked.countDown();
      await(release);
    }
  }

  private static void await(CountDownLatch latch) {
    try {
      assertTrue(latch.await(20, TimeUnit.SECONDS));
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void calls_go_on_while_the_logger_blocks() {
    CountDownLatch blocked = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    Handler blocking =
        new Handler() {
          @Override
          public void publish(LogRecord line) {
            blocked.countDown();
            EventsTest.await(release);
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        };
    Logger logger = Logger.getLogger("redisthrottle");
    logger.addHandler(blocking);
    try (Limiter limiter = Limiter.builder(server).build()) {
      server.handler = (node, words) -> MemoryServer.error("OOM of a test");
      assertEquals(Reason.SERVER, limiter.check(API.of("a")).reason());
      EventsTest.await(blocked);
      server.handler = (node, words) -> reply(ALLOWED);
      assertEquals(Source.SERVER, limiter.check(API.of("a")).source());
    } finally {
      release.countDown();
      logger.removeHandler(blocking);
    }
  }

  @Test
  void close_reports_the_ends_that_failed_before_it_returns() {
    List<Event> events = new ArrayList<>();
    LimiterBuilder builder = Limiter.builder(server).onDecision(events::add);
    Limiter limiter = builder.timeout(Duration.ofMillis(50)).build();
    limiter.lease(JOBS.of("a"));
    server.handler = (node, words) -> new CompletableFuture<>();
    limiter.close();
    assertEquals(1, limiter.counters().unsettled());
    assertEquals(2, events.size(), events.toString());
  }
}
