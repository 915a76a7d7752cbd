package redisthrottle.spring;

import io.micrometer.core.instrument.binder.MeterBinder;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import redisthrottle.Limiter;

/** Makes the metrics of the limiters. */
@AutoConfiguration(after = ThrottleAutoConfiguration.class)
@ConditionalOnClass(MeterBinder.class)
@ConditionalOnBean(Limiter.class)
public class ThrottleMetricsAutoConfiguration {
  /** Returns the metrics, which Spring Boot binds to the registry. */
  @Bean
  @ConditionalOnMissingBean
  public ThrottleMetrics throttleMetrics(ObjectProvider<Limiter> limiters) {
    return new ThrottleMetrics(limiters.orderedStream().toList());
  }
}
