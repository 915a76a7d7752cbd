package redisthrottle.servlet;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;

/** A request that notes when the application ends. */
final class WatchedRequest extends HttpServletRequestWrapper {
  private final Taken taken;

  WatchedRequest(HttpServletRequest request, Taken taken) {
    super(request);
    this.taken = taken;
  }

  @Override
  public AsyncContext startAsync() {
    return new WatchedContext(super.startAsync(), taken);
  }

  @Override
  public AsyncContext startAsync(ServletRequest request, ServletResponse response) {
    return new WatchedContext(super.startAsync(request, response), taken);
  }

  @Override
  public AsyncContext getAsyncContext() {
    return new WatchedContext(super.getAsyncContext(), taken);
  }
}
