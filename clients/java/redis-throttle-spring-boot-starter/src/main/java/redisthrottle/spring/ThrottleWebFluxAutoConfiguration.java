package redisthrottle.spring;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Mono;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.webflux.ThrottleWebFilter;
import redisthrottle.webflux.ThrottleWebFilterBuilder;

/** Makes the filter of the routes in a reactive application. */
@AutoConfiguration(after = ThrottleAutoConfiguration.class)
@ConditionalOnClass({WebFilter.class, Mono.class})
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
@ConditionalOnBean(Limiter.class)
public class ThrottleWebFluxAutoConfiguration {
  /** The attribute of an exchange with the name of its principal. */
  private static final String PRINCIPAL = "redisthrottle.principal";

  /** Returns the filter. Its order is {@code throttle.filter-order}. */
  @Bean
  public WebFilter throttleRoutes(
      Limiter limiter,
      ObjectProvider<Rule> rules,
      ThrottleProperties properties,
      ConfigurableListableBeanFactory beans,
      ApplicationContext application) {
    RouteOptions<ServerWebExchange> options =
        new RouteOptions<>(
            properties,
            beans,
            ServerWebExchange.class,
            ThrottleWebFilter::keyOf,
            exchange -> exchange.getAttribute(PRINCIPAL));
    RouteTable<WebFilter> routes =
        new RouteTable<>(
            properties,
            rules,
            route -> {
              WebFilter filter = options.route(route, ThrottleWebFilter.builder(limiter)).build();
              boolean needsPrincipal = route.given().key().equals(RouteOptions.PRINCIPAL);
              return needsPrincipal ? withPrincipal(filter) : filter;
            });
    ThrottleWebFilterBuilder others = options.common(ThrottleWebFilter.builder(limiter));
    WebFilter otherwise = others.ruleOf(exchange -> null).build();
    return new RoutesWebFilter(routes, otherwise, properties.filterOrder(), application);
  }

  /** Returns the filter, which runs when the principal is known. */
  private static WebFilter withPrincipal(WebFilter filter) {
    return (exchange, chain) ->
        exchange
            .getPrincipal()
            .doOnNext(found -> exchange.getAttributes().put(PRINCIPAL, found.getName()))
            .then(Mono.defer(() -> filter.filter(exchange, chain)));
  }
}
