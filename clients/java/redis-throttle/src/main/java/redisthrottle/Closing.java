package redisthrottle;

import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;

/** The end of a limiter, and what it ends. */
final class Closing {
  /** Aborted when the limiter closes. */
  final Signal signal = new Signal();

  private final Core core;
  private final Connector connector;

  /** The leases and admissions that have not ended, as long as the program has them. */
  private final Set<Guard> guards = Collections.newSetFromMap(new WeakHashMap<>());

  private volatile boolean isClosed;
  private final CompletableFuture<Void> closed = new CompletableFuture<>();

  Closing(Core core, Connector connector) {
    this.core = core;
    this.connector = connector;
  }

  /** Returns the error of a call after the end. */
  static IllegalStateException error() {
    return new IllegalStateException("the limiter is closed");
  }

  /** Throws if a call may not begin. */
  void check() {
    if (isClosed) {
      throw error();
    }
  }

  boolean hasBegun() {
    return isClosed;
  }

  /** Keeps a guard for {@link #close}, which may have come first. */
  <T extends Guard> T kept(T guard) {
    if (isClosed) {
      guard.end();
      throw error();
    }
    guards.add(guard);
    return guard;
  }

  /** Called when a guard has ended. */
  void ended(Guard guard) {
    guards.remove(guard);
  }

  /** Returns the decision of a lease or an admission that was allowed. */
  Decision granted(Decision d) {
    if (!d.allowed()) {
      throw isClosed ? error() : new DeniedException(d);
    }
    return d;
  }

  /**
   * Closes the limiter: ends what is held, and waits for calls that were sent, for at most the
   * time-out. A second call waits for the first.
   */
  CompletableFuture<Void> close() {
    core.loop.execute(
        () -> {
          if (isClosed) {
            return;
          }
          isClosed = true;
          signal.abort();
          CompletableFuture<Boolean> idle = core.exchange.finish();
          Runnable stop = core.loop.after(core.exchange.timeoutNs, () -> idle.complete(false));
          core.ending.close();
          List.copyOf(guards).forEach(Guard::end);
          core.stocks.drain().thenCompose(unspent -> refunded(unspent.iterator()));
          idle.whenComplete(
              (isIdle, error) -> {
                stop.run();
                closeAll();
              });
          // As a task: the ends of the guards begin as tasks.
          core.loop.execute(core.exchange::checkIdle);
        });
    return closed;
  }

  /** Refunds one at a time: more than the in-flight bound at once would not be sent. */
  private CompletableFuture<Boolean> refunded(Iterator<Prefetcher.Unspent> unspent) {
    if (!unspent.hasNext()) {
      return CompletableFuture.completedFuture(true);
    }
    Prefetcher.Unspent next = unspent.next();
    Call call = Call.one("REFUND", Ask.of(next.rule(), next.key(), "", next.units()));
    return core.decider
        .answer(call, Signal.NONE, List.of())
        .handle((reply, error) -> true)
        .thenCompose(done -> refunded(unspent));
  }

  private void closeAll() {
    core.exchange.close();
    core.decider.close();
    try {
      connector.close();
    } finally {
      core.loop.close();
      closed.complete(null);
    }
  }
}
