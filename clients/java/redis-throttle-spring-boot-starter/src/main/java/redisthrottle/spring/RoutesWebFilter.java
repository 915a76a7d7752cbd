package redisthrottle.spring;

import java.util.List;
import org.jspecify.annotations.Nullable;
import org.springframework.context.ApplicationContext;
import org.springframework.core.Ordered;
import org.springframework.http.server.PathContainer;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.web.cors.reactive.CorsUtils;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/** Limits each request by the first route that matches it. */
final class RoutesWebFilter implements WebFilter, Ordered {
  private final RouteTable<WebFilter> routes;
  private final @Nullable WebFilter otherwise;
  private final int order;
  private final ApplicationContext application;

  /**
   * Makes the filter.
   *
   * @param otherwise the filter of other requests, which limits nothing; null without one
   * @param application the application whose requests are limited
   */
  RoutesWebFilter(
      RouteTable<WebFilter> routes,
      @Nullable WebFilter otherwise,
      int order,
      ApplicationContext application) {
    this.routes = routes;
    this.otherwise = otherwise;
    this.order = order;
    this.application = application;
  }

  @Override
  public int getOrder() {
    return order;
  }

  @Override
  public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
    if (isOfManagement(exchange)) {
      return chain.filter(exchange);
    }
    ServerHttpRequest request = exchange.getRequest();
    PathContainer path = request.getPath().pathWithinApplication();
    boolean isPreflight = CorsUtils.isPreFlightRequest(request);
    WebFilter found = routes.find(List.of(path), request.getMethod().name(), isPreflight);
    WebFilter filter = found == null ? otherwise : found;
    return filter == null ? chain.filter(exchange) : filter.filter(exchange, chain);
  }

  /**
   * Tells whether a request came to Actuator's own port. Its server is a child of the application
   * and so finds this filter, unlike that of a servlet application.
   */
  private boolean isOfManagement(ServerWebExchange exchange) {
    ApplicationContext server = exchange.getApplicationContext();
    return server != null && server.getParent() == application;
  }
}
