package redisthrottle.spring;

import java.lang.System.Logger.Level;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.springframework.beans.factory.SmartInitializingSingleton;
import redisthrottle.Backend;
import redisthrottle.Limiter;

/**
 * Connects to the server while the application starts, so that its first requests are decided there
 * although the first dial of a program takes longer than a call may. Without a final reply the
 * application starts nevertheless.
 */
final class ThrottleStart implements SmartInitializingSingleton {
  /** The longest time for which the start waits, after all other beans have been created. */
  private static final long PATIENCE_S = 5;

  private static final System.Logger LOG = System.getLogger("redisthrottle.spring");

  private final CompletableFuture<Backend> ready;

  ThrottleStart(Limiter limiter) {
    ready = limiter.readyAsync().toCompletableFuture();
  }

  /** Waits before the web server accepts requests. */
  @Override
  public void afterSingletonsInstantiated() {
    try {
      ready.get(PATIENCE_S, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      warn(String.valueOf(e.getCause().getMessage()));
    } catch (TimeoutException e) {
      ready.cancel(true);
      warn("no reply");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static void warn(String problem) {
    LOG.log(
        Level.WARNING,
        "redis-throttle: the server is not ready, so on-error decides until it is: {0}",
        problem);
  }
}
