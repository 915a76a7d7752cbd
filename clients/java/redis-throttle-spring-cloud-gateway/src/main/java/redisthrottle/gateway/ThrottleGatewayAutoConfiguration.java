package redisthrottle.gateway;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.cloud.gateway.config.GatewayAutoConfiguration;
import org.springframework.cloud.gateway.filter.ratelimit.RateLimiter;
import org.springframework.cloud.gateway.support.ConfigurationService;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Primary;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;
import org.springframework.web.server.WebFilter;
import redisthrottle.Limiter;
import redisthrottle.Rule;

/**
 * Makes a {@link ThrottleRateLimiter} of an application with a bean of type {@link Limiter}. It is
 * the primary rate limiter, so the one of the gateway may stay.
 */
@AutoConfiguration(before = GatewayAutoConfiguration.class)
@ConditionalOnClass({Limiter.class, RateLimiter.class})
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
@ConditionalOnBean(Limiter.class)
@ConditionalOnProperty(name = "spring.cloud.gateway.server.webflux.enabled", matchIfMissing = true)
public class ThrottleGatewayAutoConfiguration {
  /** Returns the rate limiter. Its routes may name beans of type {@link Rule}. */
  @Bean
  @Primary
  @ConditionalOnMissingBean
  public ThrottleRateLimiter throttleRateLimiter(
      Limiter limiter, ObjectProvider<Rule> rules, ConfigurationService configuration) {
    return new ThrottleRateLimiter(limiter, rules.stream().toList(), configuration);
  }

  /**
   * Returns the filter that writes the bodies and fields of denials. A bean of this name replaces
   * it; an {@link UndecidedException} then goes to the application's error handling.
   */
  @Bean
  @Order(Ordered.HIGHEST_PRECEDENCE)
  @ConditionalOnMissingBean(name = "throttleDenialBodies")
  public WebFilter throttleDenialBodies() {
    return new DenialBodies();
  }
}
