package redisthrottle.spring;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.jspecify.annotations.Nullable;
import org.springframework.core.Ordered;
import org.springframework.http.server.RequestPath;
import org.springframework.web.cors.CorsUtils;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.util.ServletRequestPathUtils;
import redisthrottle.servlet.ThrottleFilter;

/** Limits each request by the first route that matches it. */
final class RoutesFilter extends OncePerRequestFilter implements Ordered {
  private final RouteTable<ThrottleFilter> routes;
  private final @Nullable ThrottleFilter otherwise;
  private final int order;

  /**
   * Makes the filter.
   *
   * @param otherwise the filter of other requests, which limits nothing; null without one
   */
  RoutesFilter(RouteTable<ThrottleFilter> routes, @Nullable ThrottleFilter otherwise, int order) {
    this.routes = routes;
    this.otherwise = otherwise;
    this.order = order;
  }

  @Override
  public int getOrder() {
    return order;
  }

  @Override
  protected void doFilterInternal(
      HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws ServletException, IOException {
    // The path within the servlet, as the controllers of Spring MVC see it.
    RequestPath path = ServletRequestPathUtils.parse(request);
    boolean isPreflight = CorsUtils.isPreFlightRequest(request);
    ThrottleFilter found =
        routes.find(path.pathWithinApplication(), request.getMethod(), isPreflight);
    ThrottleFilter filter = found == null ? otherwise : found;
    if (filter == null) {
      chain.doFilter(request, response);
    } else {
      filter.doFilter(request, response, chain);
    }
  }
}
