package redisthrottle;

import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** The end of a limiter, and what it ends. */
final class Closing {
  private static final System.Logger LOGGER = System.getLogger("redisthrottle");

  /** The number of refunds of unspent permits that are sent at a time. */
  private static final int REFUNDS = 64;

  /** The time for which the end waits for hooks that run. */
  private static final long REPORTS_MS = 100;

  /** Aborted when the limiter closes. */
  final Signal signal = new Signal();

  private final Loop loop;
  private final Connector connector;
  private final Exchange exchange;
  private final Events events;
  private final Prefetcher stocks;
  private final Ending ending;

  /** The leases and admissions that have not ended, as long as the program has them. */
  private final Set<Guard> guards = Collections.newSetFromMap(new WeakHashMap<>());

  private volatile boolean isClosed;
  private boolean hasEnded;
  private final CompletableFuture<Void> closed = new CompletableFuture<>();

  Closing(Connector connector, Exchange exchange, Events events, Prefetcher stocks, Ending ending) {
    this.loop = exchange.loop;
    this.connector = connector;
    this.exchange = exchange;
    this.events = events;
    this.stocks = stocks;
    this.ending = ending;
  }

  /** Throws if a call may not begin. */
  void check() {
    if (isClosed) {
      throw Errors.closed();
    }
  }

  boolean hasBegun() {
    return isClosed;
  }

  /** Keeps a guard for {@link #close}, which may have come first. */
  <T extends Guard> T kept(T guard) {
    if (isClosed) {
      guard.end();
      throw Errors.closed();
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
      throw isClosed ? Errors.closed() : new DeniedException(d);
    }
    return d;
  }

  /**
   * Closes the limiter: ends what is held, and waits for calls that were sent, for at most the
   * time-out. A second call waits for the first.
   */
  CompletableFuture<Void> close() {
    loop.execute(
        () -> {
          if (isClosed) {
            return;
          }
          isClosed = true;
          signal.abort();
          CompletableFuture<Boolean> idle = exchange.finish();
          Runnable stop = loop.after(exchange.timeoutNs, () -> idle.complete(false));
          // First, because nothing that follows may leave the limiter half closed.
          idle.whenComplete(
              (isIdle, error) -> {
                stop.run();
                closeAll();
              });
          ending.close();
          List.copyOf(guards).forEach(Guard::end);
          stocks.drain().thenAccept(unspent -> refund(unspent.iterator()));
          // As a task: the ends of the guards begin as tasks.
          loop.execute(exchange::checkIdle);
        });
    return closed;
  }

  /** Refunds some at a time: calls beyond the in-flight bound would stand in line for too long. */
  private void refund(Iterator<Prefetcher.Unspent> unspent) {
    for (int one = Math.min(REFUNDS, exchange.options.maxInFlight); one > 0; one--) {
      refundNext(unspent);
    }
  }

  private void refundNext(Iterator<Prefetcher.Unspent> unspent) {
    // A loop, because refunds that end at once would nest as deep as there are keys.
    while (unspent.hasNext() && !hasEnded) {
      Prefetcher.Unspent next = unspent.next();
      Words call = Words.one("REFUND", next.keyed().plain(next.units()));
      CompletableFuture<@Nullable Object> refund = events.send(call, Signal.NONE, List.of());
      if (!refund.isDone()) {
        refund.whenComplete((reply, error) -> loop.execute(() -> refundNext(unspent)));
        return;
      }
    }
  }

  private void closeAll() {
    hasEnded = true;
    attempt(exchange::close);
    attempt(events::close);
    attempt(connector::close);
    // As a task: the ends of the calls may have left some.
    loop.execute(
        () -> {
          CompletableFuture<Void> reported = new CompletableFuture<>();
          loop.reports.whenSent(() -> reported.complete(null));
          attempt(loop::close);
          reported
              .completeOnTimeout(null, REPORTS_MS, TimeUnit.MILLISECONDS)
              .thenRun(() -> closed.complete(null));
        });
  }

  /** Runs a part of the end, which others follow whatever it throws. */
  private void attempt(Runnable part) {
    try {
      part.run();
    } catch (RuntimeException | Error e) {
      loop.reports.send(
          () -> LOGGER.log(System.Logger.Level.ERROR, "redis-throttle: a part did not close", e));
    }
  }
}
