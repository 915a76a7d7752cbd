package redisthrottle.webflux;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.jspecify.annotations.Nullable;
import org.springframework.web.server.ServerWebExchange;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Limiter;
import redisthrottle.middleware.MiddlewareBuilder;

/** The options of a {@link ThrottleWebFilter}. Their functions must not block. */
public final class ThrottleWebFilterBuilder
    extends MiddlewareBuilder<ServerWebExchange, ThrottleWebFilterBuilder> {
  @Nullable OnDenied onDenied;
  @Nullable OnFailure onFailure;

  ThrottleWebFilterBuilder(Limiter limiter) {
    super(
        limiter,
        ThrottleWebFilterBuilder::peer,
        exchange -> exchange.getRequest().getHeaders().getOrEmpty("X-Forwarded-For"));
  }

  private static @Nullable String peer(ServerWebExchange exchange) {
    InetSocketAddress remote = exchange.getRequest().getRemoteAddress();
    if (remote == null) {
      return null;
    }
    InetAddress address = remote.getAddress();
    // Unresolved, such as that of Spring's handler of forwarded fields.
    return address == null ? remote.getHostString() : address.getHostAddress();
  }

  @Override
  protected ThrottleWebFilterBuilder self() {
    return this;
  }

  /** Sets the function that responds to denied requests. The default is a problem+json body. */
  public ThrottleWebFilterBuilder onDenied(OnDenied onDenied) {
    this.onDenied = present("onDenied", onDenied);
    return this;
  }

  /**
   * Sets the function that responds to requests that could not be decided: the server rejected the
   * command, the limiter is closed, or a function returned a wrong value. A call without a final
   * reply is no failure: the rule's {@code onError} decides. By default the failure is logged, and
   * the response has the status 500.
   */
  public ThrottleWebFilterBuilder onFailure(OnFailure onFailure) {
    this.onFailure = present("onFailure", onFailure);
    return this;
  }

  /**
   * Makes the filter.
   *
   * @throws InvalidArgumentException if there is no rule, or more than 16
   */
  public ThrottleWebFilter build() {
    return new ThrottleWebFilter(this, limits());
  }
}
