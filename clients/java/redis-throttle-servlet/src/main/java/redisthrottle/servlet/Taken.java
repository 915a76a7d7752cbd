package redisthrottle.servlet;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.EOFException;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import redisthrottle.Decision;
import redisthrottle.middleware.TakenItems;

/** The permits of a request. They end once, with the response. */
final class Taken implements AsyncListener {
  /** The status of a response whose client was gone before its head. */
  private static final int GONE = 499;

  private final TakenItems items;
  private final Set<Taken> pending;
  private final AtomicBoolean hasEnded = new AtomicBoolean();
  private volatile @Nullable HttpServletResponse response;
  private volatile @Nullable Throwable failure;

  /** Creates the permits; they are in the set while an asynchronous request is under way. */
  Taken(TakenItems items, Set<Taken> pending) {
    this.items = items;
    this.pending = pending;
  }

  Decision decision() {
    return items.decision();
  }

  /** Ends with the response: now, or when an asynchronous request is complete. */
  void endWith(HttpServletRequest request, HttpServletResponse answer, @Nullable Throwable thrown) {
    response = answer;
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

  @Override
  public void onComplete(AsyncEvent event) {
    end();
  }

  @Override
  public void onTimeout(AsyncEvent event) {
    // The application or the container answers, and then the request is complete.
  }

  @Override
  public void onError(AsyncEvent event) {
    // The client is gone, or the chain threw after startAsync: Tomcat may never complete that.
    failure = event.getThrowable();
    end();
  }

  @Override
  public void onStartAsync(AsyncEvent event) {
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
    items.giveBack(status());
  }

  /** Returns the status of the head, which cannot change once it is sent. */
  private int status() {
    HttpServletResponse answer = response;
    Throwable thrown = failure;
    if (answer == null) {
      return HttpServletResponse.SC_INTERNAL_SERVER_ERROR;
    }
    if (thrown == null || answer.isCommitted()) {
      return answer.getStatus();
    }
    return isGone(thrown) ? GONE : HttpServletResponse.SC_INTERNAL_SERVER_ERROR;
  }

  /** Returns true for the exceptions of Tomcat and Jetty that say that the client is gone. */
  private static boolean isGone(Throwable thrown) {
    return thrown instanceof EOFException
        || thrown.getClass().getSimpleName().equals("ClientAbortException");
  }
}
