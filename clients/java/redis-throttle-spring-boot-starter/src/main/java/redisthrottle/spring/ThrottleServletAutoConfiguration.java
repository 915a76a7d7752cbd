package redisthrottle.spring;

import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import java.security.Principal;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
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
@ConditionalOnBean(Limiter.class)
public class ThrottleServletAutoConfiguration {
  /** Returns the filter. Its order is {@code throttle.filter-order}. */
  @Bean
  public OncePerRequestFilter throttleRoutes(
      Limiter limiter,
      ObjectProvider<Rule> rules,
      ThrottleProperties properties,
      ConfigurableListableBeanFactory beans) {
    RouteOptions<HttpServletRequest> options =
        new RouteOptions<>(
            properties,
            beans,
            HttpServletRequest.class,
            ThrottleFilter::keyOf,
            ThrottleServletAutoConfiguration::principal);
    RouteTable<ThrottleFilter> routes =
        new RouteTable<>(
            properties,
            rules,
            route -> options.route(route, ThrottleFilter.builder(limiter)).build());
    ThrottleFilterBuilder others = options.common(ThrottleFilter.builder(limiter));
    return new RoutesFilter(
        routes, others.ruleOf(request -> null).build(), properties.filterOrder());
  }

  private static @Nullable String principal(HttpServletRequest request) {
    Principal principal = request.getUserPrincipal();
    return principal == null ? null : principal.getName();
  }
}
