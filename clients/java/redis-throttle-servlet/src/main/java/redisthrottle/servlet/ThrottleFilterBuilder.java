package redisthrottle.servlet;

import jakarta.servlet.ServletRequest;
import jakarta.servlet.http.HttpServletRequest;
import java.util.Collections;
import org.jspecify.annotations.Nullable;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Limiter;
import redisthrottle.middleware.MiddlewareBuilder;

/** The options of a {@link ThrottleFilter}. */
public final class ThrottleFilterBuilder
    extends MiddlewareBuilder<HttpServletRequest, ThrottleFilterBuilder> {
  @Nullable OnDenied onDenied;
  @Nullable OnFailure onFailure;

  ThrottleFilterBuilder(Limiter limiter) {
    super(
        limiter,
        ServletRequest::getRemoteAddr,
        request -> Collections.list(request.getHeaders("X-Forwarded-For")));
  }

  @Override
  protected ThrottleFilterBuilder self() {
    return this;
  }

  /** Sets the function that responds to denied requests. The default is a problem+json body. */
  public ThrottleFilterBuilder onDenied(OnDenied onDenied) {
    this.onDenied = present("onDenied", onDenied);
    return this;
  }

  /**
   * Sets the function that responds to requests that could not be decided: the server rejected the
   * command, the limiter is closed, the thread was interrupted, or a function returned a wrong
   * value. A call without a final reply is no failure: the rule's {@code onError} decides. By
   * default the failure is logged, and the response has the status 500.
   */
  public ThrottleFilterBuilder onFailure(OnFailure onFailure) {
    this.onFailure = present("onFailure", onFailure);
    return this;
  }

  /**
   * Makes the filter.
   *
   * @throws InvalidArgumentException if there is no rule, or more than 16
   */
  public ThrottleFilter build() {
    return new ThrottleFilter(this, limits());
  }
}
