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

/** Reports whether the server answers, within the deadline of a call. */
final class ThrottleHealth implements HealthIndicator {
  private final Limiter limiter;
  private final Duration timeout;
  private final boolean failsClosed;

  /**
   * Makes the indicator.
   *
   * @param failsClosed true if a rule denies calls without an answer: the application then is down.
   *     Otherwise its state is unknown, which leaves it in service.
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
    CompletableFuture<Backend> answer = limiter.readyAsync().toCompletableFuture();
    try {
      Backend backend = answer.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
      return Health.up().withDetail("backend", backend.word());
    } catch (ExecutionException e) {
      Throwable cause = e.getCause();
      return away(
          cause instanceof UnavailableException away
              ? away.reason().word()
              : String.valueOf(cause.getMessage()));
    } catch (TimeoutException e) {
      answer.cancel(true);
      return away("timeout");
    } catch (InterruptedException e) {
      answer.cancel(true);
      Thread.currentThread().interrupt();
      return away("interrupted");
    }
  }

  private Health.Builder away(String reason) {
    return (failsClosed ? Health.down() : Health.unknown()).withDetail("reason", reason);
  }
}
