package redisthrottle.spring;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.http.server.PathContainer;
import org.springframework.web.cors.CorsUtils;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.util.ServletRequestPathUtils;
import org.springframework.web.util.UriUtils;
import redisthrottle.servlet.ThrottleFilter;

/** Limits each request by the first route that matches it. */
final class RoutesFilter extends OncePerRequestFilter implements Ordered {
  private final RouteTable<ThrottleFilter> routes;
  private final ThrottleFilter otherwise;
  private final int order;

  /**
   * Makes the filter.
   *
   * @param otherwise the filter of other requests, which limits nothing: it responds to denials
   *     that the application throws, and removes a client's degraded header
   */
  RoutesFilter(RouteTable<ThrottleFilter> routes, ThrottleFilter otherwise, int order) {
    this.routes = routes;
    this.otherwise = otherwise;
    this.order = order;
  }

  @Override
  public int getOrder() {
    return order;
  }

  // The filters of the routes limit only requests, but hide a client's degraded header in all
  // dispatches.

  @Override
  protected boolean shouldNotFilterAsyncDispatch() {
    return false;
  }

  @Override
  protected boolean shouldNotFilterErrorDispatch() {
    return false;
  }

  /** Ends the leases of requests that the container drops at its stop. */
  @Override
  public void destroy() {
    routes.filters().forEach(ThrottleFilter::destroy);
  }

  @Override
  protected void doFilterInternal(
      HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws ServletException, IOException {
    boolean isPreflight = CorsUtils.isPreFlightRequest(request);
    ThrottleFilter found = routes.find(paths(request), request.getMethod(), isPreflight);
    (found == null ? otherwise : found).doFilter(request, response, chain);
  }

  /**
   * Returns the paths of a request: that within the servlet, as the controllers of Spring MVC see
   * it, and that by which the container chose the servlet, decoded and without {@code //}.
   */
  private static List<PathContainer> paths(HttpServletRequest request) {
    String info = request.getPathInfo();
    String chosen = request.getServletPath() + (info == null ? "" : info);
    PathContainer path =
        PathContainer.parsePath(UriUtils.encodePath(chosen, StandardCharsets.UTF_8));
    try {
      return List.of(ServletRequestPathUtils.parse(request).pathWithinApplication(), path);
    } catch (IllegalArgumentException | IllegalStateException e) {
      // It begins in another form than that of its servlet. Spring MVC refuses it.
      return List.of(path);
    }
  }
}
