package redisthrottle.servlet;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.ServletContext;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import java.io.IOException;

/** An asynchronous request that notes when the application completes or dispatches it. */
final class WatchedContext implements AsyncContext {
  private final AsyncContext context;
  private final Taken taken;

  WatchedContext(AsyncContext context, Taken taken) {
    this.context = context;
    this.taken = taken;
  }

  @Override
  public void complete() {
    taken.handling();
    try {
      context.complete();
    } finally {
      taken.handled();
    }
  }

  @Override
  public void dispatch() {
    dispatch(context::dispatch);
  }

  @Override
  public void dispatch(String path) {
    dispatch(() -> context.dispatch(path));
  }

  @Override
  public void dispatch(ServletContext other, String path) {
    dispatch(() -> context.dispatch(other, path));
  }

  private void dispatch(Runnable dispatch) {
    taken.handling();
    try {
      dispatch.run();
    } catch (RuntimeException e) {
      // The container has ended the request, and runs nothing more.
      taken.handled();
      throw e;
    }
  }

  @Override
  public ServletRequest getRequest() {
    return context.getRequest();
  }

  @Override
  public ServletResponse getResponse() {
    return context.getResponse();
  }

  @Override
  public boolean hasOriginalRequestAndResponse() {
    return context.hasOriginalRequestAndResponse();
  }

  @Override
  public void start(Runnable task) {
    context.start(task);
  }

  @Override
  public void addListener(AsyncListener listener) {
    context.addListener(new Listener(listener));
  }

  @Override
  public void addListener(
      AsyncListener listener, ServletRequest request, ServletResponse response) {
    context.addListener(new Listener(listener), request, response);
  }

  @Override
  public <T extends AsyncListener> T createListener(Class<T> type) throws ServletException {
    return context.createListener(type);
  }

  @Override
  public void setTimeout(long timeout) {
    context.setTimeout(timeout);
  }

  @Override
  public long getTimeout() {
    return context.getTimeout();
  }

  /** A listener of the application, which may complete the context of an event. */
  private final class Listener implements AsyncListener {
    private final AsyncListener listener;

    Listener(AsyncListener listener) {
      this.listener = listener;
    }

    private AsyncEvent watched(AsyncEvent event) {
      AsyncContext other = new WatchedContext(event.getAsyncContext(), taken);
      return new AsyncEvent(
          other, event.getSuppliedRequest(), event.getSuppliedResponse(), event.getThrowable());
    }

    @Override
    public void onComplete(AsyncEvent event) throws IOException {
      listener.onComplete(watched(event));
    }

    @Override
    public void onTimeout(AsyncEvent event) throws IOException {
      listener.onTimeout(watched(event));
    }

    @Override
    public void onError(AsyncEvent event) throws IOException {
      listener.onError(watched(event));
    }

    @Override
    public void onStartAsync(AsyncEvent event) throws IOException {
      listener.onStartAsync(watched(event));
    }
  }
}
