package redisthrottle.spring;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.springframework.context.ApplicationContext;
import org.springframework.core.Ordered;
import org.springframework.http.server.PathContainer;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.util.StringUtils;
import org.springframework.web.cors.reactive.CorsUtils;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import org.springframework.web.util.UriUtils;
import reactor.core.publisher.Mono;

/** Limits each request by the first route that matches it. */
final class RoutesWebFilter implements WebFilter, Ordered {
  private final RouteTable<WebFilter> routes;
  private final WebFilter otherwise;
  private final int order;
  private final ApplicationContext application;

  /**
   * Makes the filter.
   *
   * @param otherwise the filter of other requests, which limits nothing: it responds to denials
   *     that the application throws, and removes a client's degraded header
   * @param application the application whose requests are limited
   */
  RoutesWebFilter(
      RouteTable<WebFilter> routes,
      WebFilter otherwise,
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
    List<PathContainer> paths = List.of(path, cleaned(path));
    WebFilter found = routes.find(paths, request.getMethod().name(), isPreflight);
    return (found == null ? otherwise : found).filter(exchange, chain);
  }

  /**
   * Returns true if a request came to Actuator's own port. Its server is a child of the application
   * and so finds this filter, unlike that of a servlet application.
   */
  private boolean isOfManagement(ServerWebExchange exchange) {
    ApplicationContext server = exchange.getApplicationContext();
    return server != null && server.getParent() == application;
  }

  /** Returns a path as the handler of static resources reads it, such as /a of //./a. */
  private static PathContainer cleaned(PathContainer path) {
    String decoded = UriUtils.decode(path.value(), StandardCharsets.UTF_8);
    String clean = StringUtils.cleanPath("/" + decoded.replace('\\', '/'));
    String single = clean.replaceAll("/{2,}", "/");
    return PathContainer.parsePath(UriUtils.encodePath(single, StandardCharsets.UTF_8));
  }
}
