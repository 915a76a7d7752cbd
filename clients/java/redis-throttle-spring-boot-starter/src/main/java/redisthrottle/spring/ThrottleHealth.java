package redisthrottle.spring;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;
import redisthrottle.Backend;
import redisthrottle.Limiter;
import redisthrottle.UnavailableException;

/** Reports whether the server replies, within the deadline of a call. */
final class ThrottleHealth implements HealthIndicator {
  private final Limiter limiter;
  private final Duration timeout;
  private final boolean failsClosed;

  /**
   * Makes the indicator.
   *
   * @param failsClosed true if a rule denies calls without a final reply: the application then is
   *     down. Otherwise its state is unknown, which leaves it in service.
   */
  ThrottleHealth(Limiter limiter, Duration timeout, boolean failsClosed) {
    this.limiter = limiter;
    this.timeout = timeout;
    this.failsClosed = failsClosed;
  }

  @Override
  public Health health() {
    return check().withDetail("openBreakers", limiter.openBreakers()).build();
  }

  private Health.Builder check() {
    CompletableFuture<Backend> ready = limiter.readyAsync().toCompletableFuture();
    try {
      Backend backend = ready.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
      return Health.up().withDetail("backend", backend.word());
    } catch (ExecutionException e) {
      Throwable cause = e.getCause();
      return notReady(
          cause instanceof UnavailableException unavailable
              ? unavailable.reason().word()
              : String.valueOf(cause.getMessage()));
    } catch (TimeoutException e) {
      ready.cancel(true);
      return notReady("timeout");
    } catch (InterruptedException e) {
      ready.cancel(true);
      Thread.currentThread().interrupt();
      return notReady("interrupted");
    }
  }

  private Health.Builder notReady(String reason) {
    return (failsClosed ? Health.down() : Health.unknown()).withDetail("reason", reason);
  }
}
