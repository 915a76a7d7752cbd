package redisthrottle.spring;

import io.lettuce.core.RedisURI;
import io.lettuce.core.resource.ClientResources;
import java.util.List;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import redisthrottle.Connector;
import redisthrottle.Limiter;
import redisthrottle.LimiterBuilder;

/** Makes the limiter and the rules of the properties. A bean of the application comes first. */
@AutoConfiguration(
    beforeName = "redisthrottle.gateway.ThrottleGatewayAutoConfiguration",
    afterName = "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration")
@EnableConfigurationProperties(ThrottleProperties.class)
@Import({ThrottleRules.Registrar.class, DataRedisAddress.class})
public class ThrottleAutoConfiguration {
  /** Returns the connector to {@code throttle.url}, or to the server of Spring Boot. */
  @Bean
  @ConditionalOnMissingBean({Connector.class, Limiter.class})
  public Connector throttleConnector(
      ThrottleProperties properties,
      ObjectProvider<ServerAddress> ofBoot,
      ObjectProvider<ClientResources> resources) {
    ServerAddress address = ServerAddress.of(properties);
    if (address == null) {
      address = ofBoot.getIfAvailable();
    }
    if (address == null) {
      address = new ServerAddress(List.of(RedisURI.create("localhost", 6379)), false, null);
    }
    return new OwnedConnector(address, resources.getIfUnique());
  }

  /** Returns the limiter, with the options of the properties and of the customizers. */
  @Bean(destroyMethod = "close")
  @ConditionalOnMissingBean
  public Limiter throttleLimiter(
      Connector connector,
      ThrottleProperties properties,
      ObjectProvider<ThrottleLimiterCustomizer> customizers) {
    LimiterBuilder builder =
        PropertyException.below("throttle", () -> builder(connector, properties));
    customizers.orderedStream().forEach(one -> one.customize(builder));
    return PropertyException.below("throttle", builder::build);
  }

  private static LimiterBuilder builder(Connector connector, ThrottleProperties given) {
    LimiterBuilder builder =
        Limiter.builder(connector)
            .onError(given.onError())
            .maxInFlight(given.maxInFlight())
            .maxWaiting(given.maxWaiting())
            .knownDenials(given.knownDenials())
            .logErrors(given.logErrors())
            .breaker(given.breakerFailures(), given.breakerPause())
            .denialCache(given.denialCache(), given.denialCacheMax())
            .prefetch(given.prefetch())
            .backend(given.backend())
            .prefix(given.prefix());
    if (given.timeout() != null) {
      builder.timeout(given.timeout());
    }
    if (given.silence() != null) {
      builder.silence(given.silence());
    }
    if (given.hashTag()) {
      builder.hashTag();
    }
    return given.hmacSecret() == null ? builder : builder.hmacSecret(given.hmacSecret());
  }

  @Bean
  static PropertyChecks throttlePropertyChecks() {
    return new PropertyChecks();
  }

  @Bean
  UnusedRules throttleUnusedRules(
      ThrottleProperties properties, ConfigurableListableBeanFactory beans) {
    return new UnusedRules(properties, beans);
  }

  /** Returns the rules of the properties, which make the beans of type {@code Rule}. */
  @Bean(ThrottleRules.BEAN)
  ThrottleRules throttleRules(ThrottleProperties properties) {
    return new ThrottleRules(properties);
  }

  @Bean
  @ConditionalOnSingleCandidate(Limiter.class)
  ThrottleStart throttleStart(Limiter limiter) {
    return new ThrottleStart(limiter);
  }
}
