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

/** The permits of a request. They end once, with the response. */
final class Taken implements AsyncListener {
  private final TakenItems items;
  private final Set<Taken> pending;
  private final AtomicBoolean hasEnded = new AtomicBoolean();
  private volatile @Nullable HttpServletResponse response;
  private volatile @Nullable Throwable failure;

  /** True if the container reported that the client is gone. */
  private volatile boolean isGone;

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
    Throwable thrown = event.getThrowable();
    failure = thrown;
    isGone = thrown == null;
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
    Throwable thrown = failure;
    // A container commits a head before it writes it: a committed one may not have been sent.
    if (isGone || thrown != null && ClientGone.isReportedBy(thrown)) {
      items.keep();
    } else {
      items.giveBack(status(thrown));
    }
  }

  /** Returns the status of the head, which cannot change once it is sent. */
  private int status(@Nullable Throwable thrown) {
    HttpServletResponse answer = response;
    boolean isFailed = answer == null || thrown != null && !answer.isCommitted();
    return isFailed ? HttpServletResponse.SC_INTERNAL_SERVER_ERROR : answer.getStatus();
  }
}
