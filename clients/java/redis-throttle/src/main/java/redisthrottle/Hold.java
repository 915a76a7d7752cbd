package redisthrottle;

import java.lang.ref.WeakReference;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A permit or a reservation that this process holds on the server, and that renews itself. */
final class Hold {
  /** Sends a renewal. The result is true if the hold continues. */
  interface Renewal {
    CompletableFuture<Boolean> send(long until, Signal signal);
  }

  private final Loop loop;
  private final long ttlNs;
  private final boolean isOnServer;
  private final Renewal renewal;

  /** Aborted at the end of the renewals. */
  private final Signal ended = new Signal();

  /** Read by any thread. */
  private volatile long until;

  private volatile boolean isOver;
  private volatile boolean isLost;
  private Runnable stop = () -> {};
  private @Nullable WeakReference<Object> guard;

  /**
   * Makes a hold without renewals.
   *
   * @param calledAt the moment before the call was sent
   * @param isOnServer true if the server granted it; otherwise {@link OnError} did, and it is not
   *     renewed
   */
  Hold(Loop loop, long ttlNs, long calledAt, boolean isOnServer, Renewal renewal) {
    this.loop = loop;
    this.ttlNs = ttlNs;
    this.until = calledAt + ttlNs;
    this.isOnServer = isOnServer;
    this.renewal = renewal;
  }

  /**
   * Begins the renewals. They end when the guard is collected: nothing can end it any more, and
   * renewed it would be held as long as the process runs. On the server it expires.
   */
  void renewFor(Object other) {
    guard = new WeakReference<>(other);
    if (isOnServer) {
      schedule(until - ttlNs);
    }
  }

  /** Returns the end of the ttl since the last successful renewal was sent. */
  long until() {
    return until;
  }

  /** Returns true if this process still holds it, by its own clock. Any thread may call it. */
  boolean isHeld() {
    return !isOver && !isLost && (!isOnServer || loop.nanos() - until < 0);
  }

  /** Renews it for another ttl. The result is false if it is lost or ended. */
  CompletableFuture<Boolean> renew() {
    if (!isHeld() || !isOnServer) {
      return CompletableFuture.completedFuture(isHeld());
    }
    long calledAt = loop.nanos();
    return renewal
        .send(until, ended)
        .thenApply(
            isKept -> {
              if (!isKept) {
                lose();
              } else if (calledAt + ttlNs - until > 0) {
                // The replies to two renewals may arrive in any order.
                until = calledAt + ttlNs;
              }
              return isHeld();
            });
  }

  /** Ends the hold, and its renewals. */
  void end() {
    isOver = true;
    stopRenewing();
  }

  /** Ends the renewals, those that wait for a slot included. It is held until its ttl is over. */
  void stopRenewing() {
    stop.run();
    ended.abort();
  }

  private void lose() {
    stop.run();
    isLost = true;
  }

  /** Plans the renewal that follows a third of the ttl after the last one was sent. */
  private void schedule(long sentAt) {
    long due = Math.min(sentAt + ttlNs / 3 - until, 0) + until;
    stop =
        loop.after(
            due - loop.nanos(),
            () -> {
              if (guard != null && guard.get() == null) {
                end();
                return;
              }
              long now = loop.nanos();
              if (now - until >= 0) {
                lose();
                return;
              }
              // The next renewal does not wait for the reply to this one.
              schedule(now);
              // An error is ignored: further renewals follow before the ttl is over.
              renew();
            });
  }
}
