package redisthrottle.servlet;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.EOFException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import redisthrottle.Decision;
import redisthrottle.middleware.TakenItems;

/** The permits of a request. They end once, with the response. */
final class Taken implements AsyncListener {
  /** The status of a response whose client was gone before its head. */
  private static final int GONE = 499;

  private final TakenItems items;
  private final AtomicBoolean hasEnded = new AtomicBoolean();
  private volatile @Nullable HttpServletResponse response;
  private volatile @Nullable Throwable failure;

  Taken(TakenItems items) {
    this.items = items;
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
    failure = event.getThrowable();
  }

  @Override
  public void onStartAsync(AsyncEvent event) {
    // A dispatched request that starts again loses its listeners.
    event.getAsyncContext().addListener(this);
  }

  private void end() {
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
