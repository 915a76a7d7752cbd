package redisthrottle.middleware;

import java.lang.System.Logger.Level;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import redisthrottle.Admission;
import redisthrottle.CallOptions;
import redisthrottle.Count;
import redisthrottle.Decision;
import redisthrottle.DeniedException;
import redisthrottle.Item;
import redisthrottle.Kind;
import redisthrottle.Lease;
import redisthrottle.Limiter;
import redisthrottle.Source;

/** The items that a request took, or that were denied. Any thread may call its methods. */
public final class TakenItems {
  private static final System.Logger LOG = System.getLogger("redisthrottle.middleware");

  /** The counts whose failure is logged. */
  private static final Set<Count> FAILED =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  private final Limiter limiter;
  private final List<Item> items;
  private final CallOptions options;
  private final Decision decision;
  private final Runnable release;
  private final Runnable stopRenewing;
  private final AtomicBoolean isDecided = new AtomicBoolean();

  private TakenItems(
      Limiter limiter,
      List<Item> items,
      CallOptions options,
      Decision decision,
      Runnable release,
      Runnable stopRenewing) {
    this.limiter = limiter;
    this.items = items;
    this.options = options;
    this.decision = decision;
    this.release = release;
    this.stopRenewing = stopRenewing;
  }

  static TakenItems take(Limiter limiter, List<Item> items, CallOptions options) {
    Taking taking = new Taking(limiter, items, options);
    try {
      if (!taking.hasLease()) {
        return taking.ended(
            items.size() == 1
                ? limiter.check(items.get(0), options)
                : limiter.checkAll(items, options));
      }
      if (items.size() == 1) {
        Lease lease = limiter.lease(items.get(0), options);
        return taking.held(lease);
      }
      Admission admission = limiter.admit(items, options);
      return taking.held(admission);
    } catch (DeniedException e) {
      return taking.ended(e.decision());
    }
  }

  static CompletableFuture<TakenItems> takeAsync(
      Limiter limiter, List<Item> items, CallOptions options) {
    Taking taking = new Taking(limiter, items, options);
    if (!taking.hasLease()) {
      return taking.begun(
          items.size() == 1
              ? limiter.checkAsync(items.get(0), options)
              : limiter.checkAllAsync(items, options),
          taking::ended);
    }
    if (items.size() == 1) {
      return taking.begun(limiter.leaseAsync(items.get(0), options), taking::held);
    }
    return taking.begun(limiter.admitAsync(items, options), taking::held);
  }

  /** A call that takes items. */
  private record Taking(Limiter limiter, List<Item> items, CallOptions options) {
    boolean hasLease() {
      return TakenItems.hasLease(items);
    }

    TakenItems ended(Decision decision) {
      return new TakenItems(limiter, items, options, decision, () -> {}, () -> {});
    }

    TakenItems held(Lease lease) {
      return new TakenItems(
          limiter, items, options, lease.decision(), lease::releaseAsync, lease::stopRenewing);
    }

    TakenItems held(Admission all) {
      return new TakenItems(
          limiter, items, options, all.decision(), all::finishAsync, all::stopRenewing);
    }

    <T> CompletableFuture<TakenItems> begun(
        CompletionStage<T> call, Function<T, TakenItems> taken) {
      CompletableFuture<T> future = call.toCompletableFuture();
      CompletableFuture<TakenItems> result = new CompletableFuture<>();
      // It has no effect on a call that has ended.
      result.whenComplete((items, error) -> future.cancel(false));
      future.whenComplete(
          (value, error) -> {
            if (error instanceof DeniedException denied) {
              result.complete(ended(denied.decision()));
            } else if (error != null) {
              result.completeExceptionally(error);
            } else {
              TakenItems all = taken.apply(value);
              if (!result.complete(all)) {
                all.release();
              }
            }
          });
      return result;
    }
  }

  private static boolean hasLease(List<Item> items) {
    return items.stream().anyMatch(item -> item.rule().kind() == Kind.LEASE);
  }

  /** Returns the decision on the items. */
  public Decision decision() {
    return decision;
  }

  /** Releases the leases, without waiting for it. A second call has no effect. */
  public void release() {
    release.run();
  }

  /**
   * Ends the renewals of the leases, because the client has left. They are still held, because the
   * work may go on, until {@link #release} or for the rest of their ttl.
   */
  public void stopRenewing() {
    stopRenewing.run();
  }

  /** Returns true if it matters when the client leaves: a lease is held, or not all counts. */
  public boolean needsWatch() {
    return hasLease(items) || items.stream().anyMatch(item -> item.rule().count() != Count.ALL);
  }

  /**
   * Counts the items under all rules, because the client was gone before the head of the response.
   * Otherwise a client that resets its requests would get its units back while they are served. The
   * predicates of the rules are not called, and {@link #giveBack} has no effect afterwards.
   */
  public void keep() {
    isDecided.set(true);
  }

  /**
   * Gives back what the items took whose rules do not count a response with this status. Only the
   * first call has an effect. It never throws: a failure is logged, that of a predicate once, and
   * the response counts.
   */
  public void giveBack(int status) {
    if (!decision.allowed() || !isDecided.compareAndSet(false, true)) {
      return;
    }
    for (int at = 0; at < items.size(); at++) {
      Item item = items.get(at);
      Decision row = decision.rows().isEmpty() ? decision : decision.rows().get(at);
      boolean isTaken = row.source() != Source.ERROR && row.granted() > 0 && row.wouldAllow();
      try {
        if (isTaken && !counts(item.rule().count(), status)) {
          limiter.giveBack(item, row, options);
        }
      } catch (RuntimeException e) {
        LOG.log(
            Level.ERROR, "redis-throttle: units were not given back, so the response counts", e);
      }
    }
  }

  private static boolean counts(Count count, int status) {
    try {
      return count.counts(status);
    } catch (RuntimeException e) {
      if (FAILED.add(count)) {
        LOG.log(
            Level.ERROR, "redis-throttle: the predicate of a count threw, so responses count", e);
      }
      return true;
    }
  }
}
