package redisthrottle.spring;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.springframework.beans.factory.SmartInitializingSingleton;
import redisthrottle.Backend;
import redisthrottle.Limiter;
import redisthrottle.Reason;
import redisthrottle.UnavailableException;

/**
 * Connects to the server while the application starts, so that its first requests are decided there
 * although the first dial of a program takes longer than a call may. Without an answer the
 * application starts nevertheless.
 */
final class ThrottleStart implements SmartInitializingSingleton {
  /** The longest time for which the start waits. */
  private static final Duration PATIENCE = Duration.ofSeconds(2);

  /** Between calls, so that they do not open the circuit breaker. */
  private static final Duration PAUSE = Duration.ofMillis(300);

  private static final System.Logger LOG = System.getLogger("redisthrottle.spring");

  private final long end = System.nanoTime() + PATIENCE.toNanos();
  private final Limiter limiter;
  private final CompletableFuture<Backend> first;

  ThrottleStart(Limiter limiter) {
    this.limiter = limiter;
    first = ask();
  }

  private CompletableFuture<Backend> ask() {
    return limiter.readyAsync().toCompletableFuture();
  }

  private long left() {
    return Math.max(0, end - System.nanoTime());
  }

  /** Waits before the web server accepts requests. */
  @Override
  public void afterSingletonsInstantiated() {
    CompletableFuture<Backend> answer = first;
    try {
      for (; ; ) {
        try {
          answer.get(left(), TimeUnit.NANOSECONDS);
          return;
        } catch (ExecutionException e) {
          if (!isSlow(e.getCause()) || left() == 0) {
            say(String.valueOf(e.getCause().getMessage()));
            return;
          }
        }
        TimeUnit.NANOSECONDS.sleep(Math.min(left(), PAUSE.toNanos()));
        answer = ask();
      }
    } catch (TimeoutException e) {
      answer.cancel(true);
      say("no answer");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static boolean isSlow(Throwable cause) {
    Throwable one = cause instanceof CompletionException ? cause.getCause() : cause;
    return one instanceof UnavailableException away
        && (away.reason() == Reason.TIMEOUT || away.reason() == Reason.CIRCUIT);
  }

  private static void say(String problem) {
    LOG.log(
        Level.WARNING,
        "redis-throttle: the server is not ready, so on-error decides until it is: {0}",
        problem);
  }
}
