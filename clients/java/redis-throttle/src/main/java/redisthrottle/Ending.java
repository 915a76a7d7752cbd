package redisthrottle;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/**
 * Ends what the server holds for this process, or owes it: sends releases, commits, cancellations,
 * charges and refunds, and the renewals until then.
 */
final class Ending {
  /** The pauses between two attempts of an end: the first, doubling up to the longest. */
  private static final long PAUSE_NS = 100_000_000L;

  private static final long PAUSE_MAX_NS = 5_000_000_000L;

  /** The time that a charge or a refund waits for a slot. */
  private static final long SLOT_NS = 30_000_000_000L;

  /**
   * A command that ends an item.
   *
   * @param until the end of the repetitions, and of the wait for a slot
   * @param isCounted true if a failure is counted as unsettled and reported
   * @param onUnknown sent if the reply is 0, unless an earlier attempt may have run
   */
  private record End(
      EventKind kind,
      Words call,
      Keyed keyed,
      long until,
      boolean isCounted,
      @Nullable Supplier<CompletableFuture<Boolean>> onUnknown) {}

  /** The result of an attempt. */
  private record Attempt(
      long calledAt, @Nullable Decision decision, @Nullable RuntimeException error) {
    /** Returns true after a final reply, even if that is a rejection. */
    boolean isFinal() {
      return !(error instanceof UnavailableException);
    }
  }

  private final Exchange exchange;
  private final Loop loop;
  private final Events events;
  private final Denials denials;
  private final long timeoutNs;

  /** Aborted when the limiter closes. */
  private final Signal closed = new Signal();

  Ending(Exchange exchange, Events events, Denials denials) {
    this.exchange = exchange;
    this.loop = exchange.loop;
    this.events = events;
    this.denials = denials;
    this.timeoutNs = exchange.options.timeout.toNanos();
  }

  /** Renews a lease. The result is false if the server does not know it. */
  CompletableFuture<Boolean> renewLease(Keyed keyed, long until, Signal signal) {
    return renew(Words.renew(keyed), keyed, until, signal, reply -> Replies.integer(reply) == 1);
  }

  /** Renews a reservation. The result is false if the server denies or rejects it. */
  CompletableFuture<Boolean> renewReservation(Keyed keyed, long until, Signal signal) {
    return Errors.recovered(
        renew(
            Words.reserve(keyed),
            keyed,
            until,
            signal,
            reply -> Replies.decision(reply, keyed).allowed()),
        error ->
            error instanceof CommandRejectedException
                ? CompletableFuture.completedFuture(false)
                : CompletableFuture.failedFuture(error));
  }

  private CompletableFuture<Boolean> renew(
      Words call,
      Keyed keyed,
      long until,
      Signal signal,
      Function<@Nullable Object, Boolean> read) {
    return noted(exchange.sendHeld(call, node -> node.renewalSlots, until, signal), keyed, read);
  }

  /**
   * Releases a lease. Like all ends, it ends after the first attempt, also without a final reply.
   */
  CompletableFuture<Boolean> release(Keyed keyed, long until, boolean isCounted) {
    return sendUntilReplied(
        new End(EventKind.LEASE, Words.release(keyed), keyed, until, isCounted, null));
  }

  CompletableFuture<Boolean> cancel(Keyed keyed, long until, boolean isCounted) {
    return sendUntilReplied(
        new End(EventKind.CANCEL, Words.cancel(keyed), keyed, until, isCounted, null));
  }

  /**
   * Commits a reservation.
   *
   * @param isCharged whether the units are charged if the server does not know the reservation
   */
  CompletableFuture<Boolean> commit(Keyed keyed, long units, long until, boolean isCharged) {
    Supplier<CompletableFuture<Boolean>> onUnknown = isCharged ? () -> settle(keyed, units) : null;
    return sendUntilReplied(
        new End(EventKind.COMMIT, Words.commit(keyed, units), keyed, until, true, onUnknown));
  }

  /** Charges a number of units, or refunds them if it is below 0. Sends the call once. */
  CompletableFuture<Boolean> settle(Keyed of, long units) {
    if (units == 0) {
      return CompletableFuture.completedFuture(true);
    }
    Keyed keyed = of.plain(Math.abs(units));
    EventKind kind = units > 0 ? EventKind.CHARGE : EventKind.REFUND;
    Words call = Words.one(kind.name(), keyed);
    End end = new End(kind, call, keyed, loop.nanos() + SLOT_NS, true, null);
    return attempt(end).thenCompose(result -> ended(end, result, false));
  }

  /** A call with leases or reservations, which are given back if its caller has gone. */
  final class Taking extends Turn {
    private final List<Keyed> all;
    private final boolean isSeveral;
    private final boolean isCounted;
    private boolean isLost;

    private Taking(List<Keyed> all, boolean isSeveral, boolean isCounted) {
      this.all = all;
      this.isSeveral = isSeveral;
      this.isCounted = isCounted;
    }

    /** Returns the decision of a reply. */
    Decision read(@Nullable Object reply) {
      return isSeveral ? Replies.several(reply, all) : Replies.decision(reply, all.get(0));
    }

    @Override
    void late(@Nullable Object reply, @Nullable RuntimeException error) {
      if (isLost && isTaken(reply, error)) {
        abandon(all, isCounted);
      }
    }

    private boolean isTaken(@Nullable Object reply, @Nullable RuntimeException error) {
      try {
        return error == null ? read(reply).allowed() : Errors.mayHaveRun(error);
      } catch (CommandRejectedException e) {
        return false;
      }
    }
  }

  /**
   * Decides a call with leases or reservations. Ends those that may be there, but whose caller has
   * nothing of them: {@link OnError} denied them, or the caller gave up. A command that still has
   * no reply ends them when its reply arrives: a release that overtook its lease would be lost.
   *
   * @param isSeveral true for a call with several rules
   * @param isCounted whether an end that fails is counted as unsettled
   */
  CompletableFuture<Decision> abandoning(
      List<Keyed> all,
      boolean isSeveral,
      boolean isCounted,
      Function<Taking, CompletableFuture<Decision>> decide) {
    Taking taking = new Taking(all, isSeveral, isCounted);
    return decide
        .apply(taking)
        .whenComplete(
            (decision, error) -> {
              boolean isDenied = error == null && !decision.allowed();
              if (taking.isDraining) {
                taking.isLost = isDenied || error != null;
              } else if (isDenied && Errors.mayHaveRun(decision.error())) {
                abandon(all, isCounted);
              }
            });
  }

  /** Makes a guard of a call that was allowed. Ends what it would hold if that fails. */
  <T> T guarded(List<Keyed> all, boolean isCounted, Supplier<T> guard) {
    try {
      return guard.get();
    } catch (RuntimeException | Error e) {
      abandon(all, isCounted);
      throw e;
    }
  }

  /** Ends the leases and reservations of a call whose caller has nothing of them. */
  void abandon(List<Keyed> all, boolean isCounted) {
    for (Keyed keyed : all) {
      long until = loop.nanos() + keyed.holdTtl().toNanos();
      if (keyed.isReservation()) {
        cancel(keyed, until, isCounted);
      } else if (keyed.isLease()) {
        release(keyed, until, isCounted);
      }
    }
  }

  /** Sends an end. Further attempts follow by themselves. */
  private CompletableFuture<Boolean> sendUntilReplied(End end) {
    return attempt(end)
        .thenCompose(
            first -> {
              if (first.isFinal()) {
                return ended(end, first, false);
              }
              repeat(end, first, false, PAUSE_NS);
              return CompletableFuture.completedFuture(false);
            });
  }

  private void repeat(End end, Attempt last, boolean hasRun, long pause) {
    boolean mayHaveRun = hasRun || Errors.mayHaveRun(last.error);
    if (loop.nanos() + pause - end.until >= 0 || closed.isAborted()) {
      ended(end, last, mayHaveRun);
      return;
    }
    Runnable[] unfollow = {() -> {}};
    Runnable stop =
        loop.after(
            pause,
            () -> {
              unfollow[0].run();
              attempt(end)
                  .thenAccept(
                      next -> {
                        if (next.isFinal()) {
                          ended(end, next, mayHaveRun);
                        } else {
                          repeat(end, next, mayHaveRun, Math.min(2 * pause, PAUSE_MAX_NS));
                        }
                      });
            });
    unfollow[0] =
        closed.whenAborted(
            () -> {
              stop.run();
              ended(end, last, mayHaveRun);
            });
  }

  /** Counts and reports an end, once, after its last attempt. */
  private CompletableFuture<Boolean> ended(End end, Attempt last, boolean hasRun) {
    if (last.error != null) {
      if (end.isCounted || closed.isAborted()) {
        events.countUnsettled();
        // A rejection was reported when it arrived.
        if (!(last.error instanceof CommandRejectedException)) {
          events.report(end.kind, null, last.error, List.of(end.keyed), last.calledAt);
        }
      }
    } else if (last.decision != null) {
      events.report(end.kind, last.decision, null, List.of(end.keyed), last.calledAt);
      if (!last.decision.allowed() && !hasRun && end.onUnknown != null) {
        return end.onUnknown.get();
      }
    }
    return CompletableFuture.completedFuture(true);
  }

  private CompletableFuture<Attempt> attempt(End end) {
    long calledAt = loop.nanos();
    boolean isRelease = end.kind == EventKind.LEASE;
    // An end waits for a slot although its ttl is over.
    long slotUntil = Math.max(end.until, calledAt + timeoutNs);
    denials.forget(end.kind, end.keyed.key());
    Function<@Nullable Object, Attempt> read =
        reply -> {
          if (isRelease) {
            return new Attempt(calledAt, null, null);
          }
          return new Attempt(calledAt, Replies.settled(reply, end.keyed.rule()), null);
        };
    return noted(
            exchange.sendHeld(end.call, node -> node.endSlots, slotUntil, Signal.NONE),
            end.keyed,
            read)
        .exceptionally(error -> new Attempt(calledAt, null, Errors.classified(error)))
        .whenComplete((result, error) -> denials.forget(end.kind, end.keyed.key()));
  }

  /** Reads the reply of a call in a slot. Counts and reports a rejection. */
  private <T> CompletableFuture<T> noted(
      CompletableFuture<@Nullable Object> reply, Keyed keyed, Function<@Nullable Object, T> read) {
    long calledAt = loop.nanos();
    return Errors.recovered(
        reply.thenApply(read),
        error ->
            CompletableFuture.failedFuture(events.noteRejection(error, List.of(keyed), calledAt)));
  }

  /** Ends the repetitions. From now on an end without a final reply is counted and reported. */
  void close() {
    closed.abort();
  }
}
