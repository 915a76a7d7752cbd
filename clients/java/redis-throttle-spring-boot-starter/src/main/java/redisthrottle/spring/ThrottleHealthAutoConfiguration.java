package redisthrottle.spring;

import java.time.Duration;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.health.autoconfigure.contributor.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.context.annotation.Bean;
import redisthrottle.Limiter;
import redisthrottle.OnError;

/** Makes the health indicator {@code throttle}. */
@AutoConfiguration(after = ThrottleAutoConfiguration.class)
@ConditionalOnClass({HealthIndicator.class, ConditionalOnEnabledHealthIndicator.class})
@ConditionalOnEnabledHealthIndicator("throttle")
@ConditionalOnSingleCandidate(Limiter.class)
public class ThrottleHealthAutoConfiguration {
  /** The time-out of a limiter by default. */
  private static final Duration TIMEOUT = Duration.ofSeconds(1);

  /** Returns the indicator. */
  @Bean
  @ConditionalOnMissingBean(name = "throttleHealthIndicator")
  public HealthIndicator throttleHealthIndicator(Limiter limiter, ThrottleProperties properties) {
    boolean failsClosed =
        properties.onError() == OnError.DENY
            || properties.rules().values().stream().anyMatch(r -> r.onError() == OnError.DENY);
    Duration timeout = properties.timeout();
    return new ThrottleHealth(limiter, timeout == null ? TIMEOUT : timeout, failsClosed);
  }
}
