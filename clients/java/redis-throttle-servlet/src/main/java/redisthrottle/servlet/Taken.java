package redisthrottle.servlet;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import redisthrottle.Decision;
import redisthrottle.middleware.ClientGone;
import redisthrottle.middleware.TakenItems;

/**
 * The permits of a request. They end once, with the response. If its client has left, that may be
 * before the application ends: then they end with the application, or expire.
 */
final class Taken implements AsyncListener {
  private final TakenItems items;
  private final HttpServletResponse response;
  private final Set<Taken> pending;
  private final AtomicBoolean hasEnded = new AtomicBoolean();
  private volatile @Nullable Throwable failure;

  /** True if the head was committed before the last read: Tomcat reports it after a failed one. */
  private volatile boolean hasHead;

  /** True if the client has left. */
  private volatile boolean isLeft;

  /** True if the application has completed or dispatched the asynchronous request. */
  private volatile boolean isHandled;

  /** Creates the permits; they are in the set while an asynchronous request is under way. */
  Taken(TakenItems items, HttpServletResponse response, Set<Taken> pending) {
    this.items = items;
    this.response = response;
    this.pending = pending;
  }

  Decision decision() {
    return items.decision();
  }

  boolean needsWatch() {
    return items.needsWatch();
  }

  /** Ends with the response: now, or when an asynchronous request is complete. */
  void endWith(HttpServletRequest request, @Nullable Throwable thrown) {
    failure = thrown;
    if (request.isAsyncStarted()) {
      try {
        pending.add(this);
        request.getAsyncContext().addListener(this);
        return;
      } catch (IllegalStateException e) {
        // The request was completed meanwhile.
      }
    }
    end();
  }

  /** Called before the application reads the body of the request. */
  void reading() {
    hasHead = response.isCommitted();
  }

  /** Called when the client has cut the body of the request. */
  void cut() {
    // The status of a head that was sent before decides.
    if (!hasHead) {
      items.keep();
    }
    leave();
  }

  private void leave() {
    isLeft = true;
    items.stopRenewing();
  }

  /** Called before the application completes or dispatches the asynchronous request. */
  void handling() {
    isHandled = true;
  }

  /** Called when the application has ended. The container may have ended the request before. */
  void handled() {
    if (isLeft) {
      end();
    }
  }

  @Override
  public void onComplete(AsyncEvent event) {
    endUnlessWorking();
  }

  /** Ends them, unless the client has left and the application may go on. */
  private void endUnlessWorking() {
    if (!isLeft || isHandled) {
      end();
    }
  }

  @Override
  public void onTimeout(AsyncEvent event) {
    // The application or the container responds, and then the request is complete.
  }

  @Override
  public void onError(AsyncEvent event) {
    Throwable thrown = event.getThrowable();
    boolean isGone = thrown == null || ClientGone.isReportedBy(thrown);
    if (isGone) {
      // A container commits a head before it writes it: a committed one may not have been sent.
      items.keep();
      leave();
    } else {
      failure = thrown;
    }
    // The chain may have thrown after startAsync: Tomcat may never complete that.
    endUnlessWorking();
  }

  @Override
  public void onStartAsync(AsyncEvent event) {
    isHandled = false;
    // A dispatched request that starts again loses its listeners.
    event.getAsyncContext().addListener(this);
  }

  /** Ends them before the response, whose container stops. */
  void stop() {
    failure = new IllegalStateException("the filter was destroyed");
    try {
      end();
    } catch (IllegalStateException e) {
      // Released; the container has recycled the response, so it counts.
    }
  }

  private void end() {
    pending.remove(this);
    if (!hasEnded.compareAndSet(false, true)) {
      return;
    }
    items.release();
    Throwable thrown = failure;
    if (thrown != null && ClientGone.isReportedBy(thrown)) {
      items.keep();
    } else {
      items.giveBack(status(thrown));
    }
  }

  /** Returns the status of the head, which cannot change once it is sent. */
  private int status(@Nullable Throwable thrown) {
    return thrown != null && !response.isCommitted()
        ? HttpServletResponse.SC_INTERNAL_SERVER_ERROR
        : response.getStatus();
  }
}
