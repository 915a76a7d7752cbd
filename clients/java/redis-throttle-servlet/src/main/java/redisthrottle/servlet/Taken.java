package redisthrottle.servlet;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.EOFException;
import java.lang.System.Logger.Level;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import redisthrottle.Admission;
import redisthrottle.CallOptions;
import redisthrottle.Count;
import redisthrottle.Decision;
import redisthrottle.DeniedException;
import redisthrottle.Item;
import redisthrottle.Kind;
import redisthrottle.Lease;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.Source;

/** The permits of a request. They end once, with the response. */
final class Taken implements AsyncListener {
  /** The status of a response whose client was gone before its head. */
  private static final int GONE = 499;

  private static final System.Logger LOG = System.getLogger("redisthrottle.servlet");

  private final Limiter limiter;
  private final List<Item> items;
  private final CallOptions options;
  private final Decision decision;
  private final Runnable release;
  private final AtomicBoolean hasEnded = new AtomicBoolean();
  private volatile @Nullable HttpServletResponse response;
  private volatile @Nullable Throwable failure;

  private Taken(
      Limiter limiter, List<Item> items, CallOptions options, Decision decision, Runnable release) {
    this.limiter = limiter;
    this.items = items;
    this.options = options;
    this.decision = decision;
    this.release = release;
  }

  /** Asks for the items in one call. A denial is no error. */
  static Taken take(Limiter limiter, List<Item> items, CallOptions options) {
    boolean hasLease = items.stream().anyMatch(item -> item.rule().kind() == Kind.LEASE);
    try {
      if (hasLease && items.size() == 1) {
        Lease lease = limiter.lease(items.get(0), options);
        return new Taken(limiter, items, options, lease.decision(), lease::releaseAsync);
      }
      if (hasLease) {
        Admission admission = limiter.admit(items, options);
        return new Taken(limiter, items, options, admission.decision(), admission::finishAsync);
      }
      Decision decision =
          items.size() == 1
              ? limiter.check(items.get(0), options)
              : limiter.checkAll(items, options);
      return new Taken(limiter, items, options, decision, () -> {});
    } catch (DeniedException e) {
      return new Taken(limiter, items, options, e.decision(), () -> {});
    }
  }

  Decision decision() {
    return decision;
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
    release.run();
    int status = status();
    for (int at = 0; at < items.size(); at++) {
      Item item = items.get(at);
      Decision row = decision.rows().isEmpty() ? decision : decision.rows().get(at);
      boolean isTaken = row.source() != Source.ERROR && row.granted() > 0 && row.wouldAllow();
      if (isTaken && !counts(item.rule(), status)) {
        limiter.giveBack(item, row, options);
      }
    }
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

  private static boolean counts(Rule rule, int status) {
    Count count = rule.count();
    if (count == Count.ALL) {
      return true;
    }
    try {
      return count.counts(status);
    } catch (RuntimeException e) {
      LOG.log(Level.ERROR, "redis-throttle: a count threw, so the response counts", e);
      return true;
    }
  }
}
