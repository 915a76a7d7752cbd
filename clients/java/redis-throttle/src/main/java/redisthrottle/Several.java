package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/** Calls that follow each other: checks of several items, and a wait. */
final class Several {
  private final Steps steps;
  private final CallOptions options;

  Several(Steps steps, CallOptions options) {
    this.steps = steps;
    this.options = options;
  }

  /** Returns the refund of what a check took. */
  private CompletableFuture<Decision> refund(Item item, Decision taken, Signal signal) {
    try {
      Item units = item.rule.of(item.subject).cost(taken.granted());
      return steps.givenBack(EventKind.REFUND, units, options).begin(signal);
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  Work<Decision> checkEach(List<Item> items) {
    List<Keyed> all = steps.all(items, options);
    if (all.isEmpty()) {
      throw invalid("items", "at least one item");
    }
    List<Work<Decision>> checks = new ArrayList<>();
    for (int at = 0; at < all.size(); at++) {
      Keyed keyed = all.get(at);
      if (keyed.isHeld() || !keyed.rule().takesCost()) {
        throw invalid("items", "no lease, reservation or backoff: " + keyed.rule().name());
      }
      checks.add(steps.check(items.get(at), options));
    }
    List<Long> costs = all.stream().map(Keyed::cost).toList();
    return signal -> {
      List<Decision> rows = new ArrayList<>();
      CompletableFuture<Boolean> checked = checkFrom(0, checks, rows, signal);
      return Errors.recovered(
              checked,
              error ->
                  giveBack(0, items, rows)
                      .thenCompose(done -> CompletableFuture.failedFuture(error)))
          .thenCompose(
              allowed ->
                  allowed ? CompletableFuture.completedFuture(true) : giveBack(0, items, rows))
          .thenApply(done -> Draft.combined(rows, costs.subList(0, rows.size())));
    };
  }

  /** Checks the items from one on. The result is false after a denial. */
  private static CompletableFuture<Boolean> checkFrom(
      int at, List<Work<Decision>> checks, List<Decision> rows, Signal signal) {
    // A loop: calls that end at once, as those of an outage do, would follow inside of one another.
    for (int next = at; next < checks.size(); next++) {
      if (signal.isAborted()) {
        return CompletableFuture.failedFuture(Signal.cancelled());
      }
      int after = next + 1;
      CompletableFuture<Decision> check = checks.get(next).begin(signal);
      if (!check.isDone() || check.isCompletedExceptionally()) {
        return check.thenCompose(
            row -> {
              rows.add(row);
              return row.allowed()
                  ? checkFrom(after, checks, rows, signal)
                  : CompletableFuture.completedFuture(false);
            });
      }
      rows.add(check.join());
      if (!check.join().allowed()) {
        return CompletableFuture.completedFuture(false);
      }
    }
    return CompletableFuture.completedFuture(true);
  }

  /**
   * Refunds, once, what the rows took. A row that only shadow mode allowed took nothing. The end of
   * the caller does not end it.
   */
  private CompletableFuture<Boolean> giveBack(int at, List<Item> items, List<Decision> rows) {
    for (int next = at; next < rows.size(); next++) {
      Decision row = rows.get(next);
      boolean isTaken =
          row.allowed() && row.wouldAllow() && !row.degraded() && items.get(next).cost > 0;
      int after = next + 1;
      CompletableFuture<Decision> given =
          isTaken
              ? refund(items.get(next), row, Signal.NONE)
              : CompletableFuture.completedFuture(row);
      if (!given.isDone()) {
        return given
            .handle((reply, error) -> true)
            .thenCompose(done -> giveBack(after, items, rows));
      }
    }
    return CompletableFuture.completedFuture(true);
  }

  Work<Decision> await(Item item, Duration longest) {
    if (Checks.present("longest", longest).isNegative()) {
      throw invalid("longest", "a duration of at least 0");
    }
    Work<Decision> check = steps.check(item, options);
    return signal -> {
      long now = steps.loop.nanos();
      // A longer wait than 146 years is one of 146 years.
      boolean isLong = longest.getSeconds() > Long.MAX_VALUE / 2_000_000_000;
      long until = now + (isLong ? Long.MAX_VALUE / 2 : longest.toNanos());
      return awaited(item, check, until, signal, null);
    };
  }

  /**
   * Checks, and sleeps after a denial.
   *
   * @param last the denial before; null at first
   */
  private CompletableFuture<Decision> awaited(
      Item item, Work<Decision> check, long until, Signal signal, @Nullable Decision last) {
    return check
        .begin(signal)
        .thenCompose(
            checked -> {
              boolean isOver = signal.left(steps.exchange.timeoutNs) <= 0;
              // The time of the caller is over, and the server has denied it.
              Decision d = isOver && checked.degraded() && last != null ? last : checked;
              if (d.retryAfter().isZero()) {
                return CompletableFuture.completedFuture(d);
              }
              long left = until - steps.loop.nanos();
              boolean fits = !d.never() && d.retryAfter().compareTo(Duration.ofNanos(left)) <= 0;
              if (!d.allowed() && (!fits || isOver || d.source() == Source.ERROR)) {
                return CompletableFuture.completedFuture(d);
              }
              boolean hasPlace = d.allowed() && !d.degraded();
              return fits
                  ? slept(item, check, d, until, signal)
                  : tooLate(item, d, hasPlace, signal);
            });
  }

  /** Sleeps until the call's turn, or checks again after the sleep. */
  private CompletableFuture<Decision> slept(
      Item item, Work<Decision> check, Decision d, long until, Signal signal) {
    CompletableFuture<Boolean> slept = new CompletableFuture<>();
    Runnable stop = steps.loop.after(d.retryAfter().toNanos(), () -> slept.complete(true));
    Runnable unclose =
        steps.closing.signal.whenAborted(() -> slept.completeExceptionally(Errors.closed()));
    Runnable unfollow =
        signal.whenAborted(
            () -> {
              stop.run();
              slept.complete(false);
            });
    return slept
        .whenComplete((isOver, error) -> unclose.run())
        .thenCompose(
            isOver -> {
              unfollow.run();
              if (isOver) {
                return d.allowed()
                    ? CompletableFuture.completedFuture(d)
                    : awaited(item, check, until, signal, d);
              }
              if (d.allowed() && !d.degraded()) {
                refund(item, d, Signal.NONE);
              }
              return CompletableFuture.failedFuture(Signal.cancelled());
            });
  }

  /**
   * Leaves the queue of a leaky bucket, and denies the call. Without a final reply its place stays
   * taken.
   */
  private CompletableFuture<Decision> tooLate(
      Item item, Decision d, boolean hasPlace, Signal signal) {
    if (!hasPlace) {
      return CompletableFuture.completedFuture(Draft.of(d).tooLate().done());
    }
    return refund(item, d, signal)
        .handle(
            (reply, error) -> {
              if (error != null && !(Errors.cause(error) instanceof UnavailableException)) {
                throw Errors.classified(error);
              }
              return Draft.of(d).tooLate().done();
            });
  }
}
