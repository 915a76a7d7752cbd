package redisthrottle.spring;

import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import java.security.Principal;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.web.filter.OncePerRequestFilter;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.servlet.ThrottleFilter;
import redisthrottle.servlet.ThrottleFilterBuilder;

/** Makes the filter of the routes in a servlet application. */
@AutoConfiguration(after = ThrottleAutoConfiguration.class)
@ConditionalOnClass({Filter.class, OncePerRequestFilter.class})
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
@ConditionalOnSingleCandidate(Limiter.class)
public class ThrottleServletAutoConfiguration {
  /** Returns the filter. Its order is {@code throttle.filter-order}. */
  @Bean
  public OncePerRequestFilter throttleRoutes(
      Limiter limiter,
      ObjectProvider<Rule> rules,
      ThrottleProperties properties,
      ConfigurableListableBeanFactory beans) {
    RouteKey<HttpServletRequest> keys =
        new RouteKey<>(HttpServletRequest.class, beans, properties.filterOrder());
    RouteTable<ThrottleFilter> routes =
        new RouteTable<>(
            properties,
            rules,
            route -> {
              ThrottleFilterBuilder builder = builder(limiter, properties);
              route.rules().forEach(builder::rule);
              Function<HttpServletRequest, @Nullable String> key =
                  keys.of(
                      route,
                      name -> request -> request.getHeader(name),
                      ThrottleServletAutoConfiguration::principal);
              return (key == null ? builder : builder.key(key)).build();
            });
    // On other requests, too, the field comes from the limiter alone.
    ThrottleFilter otherwise =
        properties.degradedHeader() == null
            ? null
            : builder(limiter, properties).ruleOf(request -> null).build();
    return new RoutesFilter(routes, otherwise, properties.filterOrder());
  }

  private static @Nullable String principal(HttpServletRequest request) {
    Principal principal = request.getUserPrincipal();
    return principal == null ? null : principal.getName();
  }

  private static ThrottleFilterBuilder builder(Limiter limiter, ThrottleProperties properties) {
    return PropertyException.below(
        "throttle",
        () -> {
          ThrottleFilterBuilder builder = ThrottleFilter.builder(limiter);
          builder.headers(properties.headers());
          if (properties.trustedProxies() != null) {
            builder.trustedProxies(properties.trustedProxies());
          }
          if (properties.degradedHeader() != null) {
            builder.degradedHeader(properties.degradedHeader());
          }
          return builder;
        });
  }
}
