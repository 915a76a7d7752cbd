package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongFunction;
import org.jspecify.annotations.Nullable;

/**
 * Keeps permits that one call fetched. While a fetch is under way, further callers wait for its
 * permits. When all are promised, the next caller starts another fetch. So a key never has more
 * than one fetch's permits that no caller waits for.
 */
final class Prefetcher {
  /**
   * The maximum number of keys with permits. The oldest are dropped, which only makes the limit
   * stricter.
   */
  private static final int KEYS_MAX = 10_000;

  /** Unspent permits of a key. */
  record Unspent(Keyed keyed, long units) {}

  /** A fetch that a caller wants: its rule, its size, and the call. */
  record Wanted(Keyed keyed, int batch, LongFunction<CompletableFuture<Decision>> send) {
    String key() {
      return keyed.key();
    }
  }

  private final class Stock {
    final Keyed keyed;
    final Decision grant;
    final long expiresAt;
    long left;

    Stock(Keyed keyed, Decision grant, long left, long expiresAt) {
      this.keyed = keyed;
      this.grant = grant;
      this.left = left;
      this.expiresAt = expiresAt;
    }

    boolean isOver() {
      return loop.nanos() - expiresAt >= 0;
    }

    Decision spend() {
      left--;
      long ms = Math.max(0, (expiresAt - loop.nanos() + 999_999) / 1_000_000);
      return Draft.of(grant)
          .permit(1, grant.remaining() + left, Duration.ofMillis(ms), Source.LOCAL)
          .done();
    }
  }

  private static final class Fetch {
    final Wanted wanted;
    final List<Waiter> waiters = new ArrayList<>();
    long permits;
    long calledAt;

    Fetch(Wanted wanted) {
      this.wanted = wanted;
    }
  }

  private final Loop loop;
  private final LinkedHashMap<String, Stock> stocks = new LinkedHashMap<>();

  /** The last fetch of each key that has permits not yet promised. */
  private final Map<String, Fetch> open = new HashMap<>();

  private final Set<Fetch> underWay = new HashSet<>();
  private @Nullable CompletableFuture<Boolean> drained;

  Prefetcher(Loop loop) {
    this.loop = loop;
  }

  /** Takes a kept permit that was fetched under this rule; null if there is none. */
  @Nullable Decision spend(Keyed keyed) {
    Stock kept = stocks.get(keyed.key());
    if (kept == null) {
      return null;
    }
    if (kept.left < 1 || kept.isOver() || !kept.keyed.isSame(keyed)) {
      stocks.remove(keyed.key());
      return null;
    }
    return kept.spend();
  }

  /** Returns a permit of a fetch from a node. The caller has found no kept one. */
  CompletableFuture<Decision> take(Wanted wanted, Node node, long timeoutNs, Signal signal) {
    Waiter waiter = new Waiter(wanted.keyed, node, timeoutNs, signal);
    waiter.follow();
    Fetch begun = open.get(wanted.key());
    if (begun != null
        && begun.waiters.size() < begun.permits
        && begun.wanted.keyed.isSame(wanted.keyed)) {
      begun.waiters.add(waiter);
    } else {
      fetch(wanted, List.of(waiter));
    }
    return waiter.result;
  }

  private void fetch(Wanted wanted, List<Waiter> waiters) {
    Fetch fetch = new Fetch(wanted);
    fetch.waiters.addAll(waiters);
    fetch.permits = Math.max(wanted.batch, waiters.size());
    fetch.calledAt = loop.nanos();
    open.put(wanted.key(), fetch);
    underWay.add(fetch);
    Errors.begun(() -> wanted.send.apply(fetch.permits))
        .whenComplete(
            (grant, error) -> {
              underWay.remove(fetch);
              if (error == null) {
                share(fetch, grant);
              } else {
                fail(fetch, Errors.cause(error));
              }
              if (drained != null && underWay.isEmpty()) {
                drained.complete(true);
              }
            });
  }

  private void fail(Fetch fetch, Throwable error) {
    open.remove(fetch.wanted.key(), fetch);
    for (Waiter one : fetch.waiters) {
      one.fail(error);
    }
  }

  /** Gives a permit to each waiter in turn, and keeps the rest. */
  private void share(Fetch fetch, Decision grant) {
    Wanted wanted = fetch.wanted;
    boolean wasOpen = open.remove(wanted.key(), fetch);
    long expiresAt = fetch.calledAt + grant.resetAfter().toNanos();
    long units = grant.allowed() ? grant.granted() : 0;
    Stock stock = new Stock(wanted.keyed, grant, units, expiresAt);
    List<Waiter> again = new ArrayList<>();
    boolean isFirst = true;
    for (Waiter one : fetch.waiters) {
      if (one.isEnded) {
        continue;
      }
      if (!grant.allowed()) {
        one.complete(grant);
      } else if (isFirst) {
        stock.left--;
        long left = grant.remaining() + stock.left;
        one.complete(Draft.of(grant).permit(1, left, grant.resetAfter(), Source.SERVER).done());
      } else if (stock.left > 0) {
        one.complete(stock.spend());
      } else if (one.smaller != null) {
        one.complete(noneLeft(wanted.keyed, grant));
      } else {
        one.smaller = grant;
        again.add(one);
      }
      isFirst = false;
    }
    if (wasOpen && stock.left > 0) {
      keep(wanted.key(), stock);
    }
    if (!again.isEmpty()) {
      // They fetch once more, together. After a second shortfall they are denied.
      fetch(wanted, again);
    }
  }

  private void keep(String key, Stock stock) {
    stocks.remove(key);
    stocks.put(key, stock);
    if (stocks.size() > KEYS_MAX) {
      forget(stocks.keySet().iterator().next());
    }
  }

  /** Returns an unused permit to the stock. Returns false if there is none, or a full one. */
  boolean putBack(Keyed keyed, int batch) {
    Stock kept = stocks.get(keyed.key());
    if (kept == null || !kept.keyed.isSame(keyed) || kept.left >= batch || kept.isOver()) {
      return false;
    }
    kept.left++;
    return true;
  }

  /** Drops the permits of a key, and those on their way that no caller waits for. */
  void forget(String key) {
    stocks.remove(key);
    open.remove(key);
  }

  /** Waits for the fetches under way, and removes and returns the permits to refund. */
  CompletableFuture<List<Unspent>> drain() {
    CompletableFuture<Boolean> ended = new CompletableFuture<>();
    drained = ended;
    if (underWay.isEmpty()) {
      ended.complete(true);
    }
    return ended.thenApply(
        done -> {
          List<Unspent> left = new ArrayList<>();
          stocks.forEach(
              (key, stock) -> {
                if (stock.left > 0 && !stock.isOver()) {
                  left.add(new Unspent(stock.keyed, stock.left));
                }
              });
          stocks.clear();
          return left;
        });
  }

  /**
   * Denies a caller whose fetch brought too few permits. Its retry time is the grant's reset; in a
   * bucket, which refills evenly, the earlier time when one unit is back.
   */
  private static Decision noneLeft(Keyed keyed, Decision grant) {
    Definition rule = keyed.definition();
    Duration after = grant.resetAfter();
    if (rule.kind == Kind.GCRA || rule.kind == Kind.TOKEN_BUCKET) {
      Duration period = Checks.present("period", rule.period);
      double perUnit = (double) period.toNanos() / rule.rate;
      long others = (long) (perUnit * (rule.limit - 1)) / 1_000_000;
      after = Duration.ofMillis(Math.max(1, after.toMillis() - others));
    }
    return Draft.of(grant).denied(after).done();
  }

  /** A caller that waits for a permit, until it gets one, its deadline passes or it gives up. */
  private final class Waiter extends RunClock.Due {
    final CompletableFuture<Decision> result = new CompletableFuture<>();
    final Keyed keyed;
    boolean isEnded;

    /** The grant of a fetch that brought no permit for this caller. */
    @Nullable Decision smaller;

    private final Node node;
    private final long timeoutNs;
    private final Signal signal;
    private long beganAt;
    private Runnable unfollow = () -> {};

    Waiter(Keyed keyed, Node node, long timeoutNs, Signal signal) {
      this.keyed = keyed;
      this.node = node;
      this.timeoutNs = timeoutNs;
      this.signal = signal;
      restart();
    }

    @Override
    void restart() {
      beganAt = node.clock.nanos();
      endsAt = node.deadline(signal.left(timeoutNs));
    }

    void follow() {
      node.clock.add(this);
      unfollow =
          signal.whenAborted(
              () -> {
                if (end()) {
                  result.completeExceptionally(Signal.cancelled());
                }
              });
    }

    @Override
    void expire() {
      String text = "no prefetched permit in time";
      fail(UnavailableException.unsent(Reason.OVERLOADED, text, null));
    }

    void complete(Decision decision) {
      if (end()) {
        result.complete(decision);
      }
    }

    /** Ends the wait without a permit. If the server had granted too few, the call is denied. */
    void fail(Throwable error) {
      if (!end()) {
        return;
      }
      if (smaller != null && error instanceof UnavailableException) {
        result.complete(noneLeft(keyed, smaller));
      } else {
        result.completeExceptionally(error);
      }
    }

    private boolean end() {
      boolean wasWaiting = !isEnded;
      isEnded = true;
      node.clock.delete(this);
      unfollow.run();
      if (wasWaiting) {
        signal.spend(node.clock.nanos() - beganAt);
      }
      return wasWaiting;
    }
  }
}
