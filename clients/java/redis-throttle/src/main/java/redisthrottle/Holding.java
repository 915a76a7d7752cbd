package redisthrottle;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Makes leases and admissions of the decisions that allowed them. */
final class Holding {
  private final Loop loop;
  private final Ending ending;

  Holding(Loop loop, Ending ending) {
    this.loop = loop;
    this.ending = ending;
  }

  Lease lease(Core core, Ask ask, Decision decision, long askedAt) {
    Hold hold = hold(ask, decision, askedAt);
    return new Lease(
        core,
        decision,
        ask.id(),
        hold,
        () ->
            mayBeThere(decision)
                ? ending.release(ask, hold.until(), false)
                : CompletableFuture.completedFuture(true));
  }

  Admission admission(Core core, List<Ask> asks, Decision decision, String id, long askedAt) {
    List<Admission.Part> parts = new ArrayList<>();
    for (int at = 0; at < asks.size(); at++) {
      Ask ask = asks.get(at);
      Decision row = decision.rows().isEmpty() ? decision : decision.rows().get(at);
      if (ask.isHeld()) {
        Hold hold = hold(ask, row, askedAt);
        parts.add(
            new Admission.Part(
                ask.rule(), ask.subject(), hold, units -> end(ask, row, hold, units)));
      } else {
        parts.add(
            new Admission.Part(ask.rule(), ask.subject(), null, units -> settle(ask, row, units)));
      }
    }
    return new Admission(core, decision, id, parts);
  }

  private Hold hold(Ask ask, Decision row, long askedAt) {
    boolean isOnServer = row.source() == Source.SERVER;
    Hold.Renewal renewal =
        (until, signal) ->
            ask.isReservation()
                ? ending.renewReservation(ask, until, signal)
                : ending.renewLease(ask, until, signal);
    return new Hold(loop, ask.holdTtl().toNanos(), askedAt, isOnServer, renewal);
  }

  /** Ends a lease or a reservation. */
  private CompletableFuture<Boolean> end(Ask ask, Decision row, Hold hold, @Nullable Long units) {
    if (!mayBeThere(row)) {
      return CompletableFuture.completedFuture(true);
    }
    if (!ask.isReservation()) {
      return ending.release(ask, hold.until(), true);
    }
    return units == null
        ? ending.cancel(ask, hold.until(), true)
        : ending.commit(ask, units, hold.until(), row.source() == Source.SERVER);
  }

  /** Charges or refunds the difference between the cost of a plain rule and what its work took. */
  private CompletableFuture<Boolean> settle(Ask ask, Decision row, @Nullable Long units) {
    // A call that only shadow mode allowed took nothing.
    if (units == null || row.source() != Source.SERVER || !row.wouldAllow()) {
      return CompletableFuture.completedFuture(true);
    }
    return ending.settle(ask, units - ask.cost());
  }

  /** Returns true if the server may hold the lease or the reservation of a row. */
  private static boolean mayBeThere(Decision row) {
    return row.source() == Source.SERVER
        || row.source() == Source.ERROR && Failures.mayHaveRun(row.error());
  }
}
