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

  Lease lease(Guard.Owner owner, Keyed keyed, Decision decision, long calledAt) {
    Hold hold = hold(keyed, decision, calledAt);
    return new Lease(
        owner,
        decision,
        keyed.id(),
        hold,
        () ->
            mayBeThere(decision)
                ? ending.release(keyed, hold.until(), false)
                : CompletableFuture.completedFuture(true));
  }

  Admission admission(
      Guard.Owner owner, List<Keyed> all, Decision decision, String id, long calledAt) {
    List<Admission.Part> parts = new ArrayList<>();
    for (int at = 0; at < all.size(); at++) {
      Keyed keyed = all.get(at);
      Decision row = decision.rows().isEmpty() ? decision : decision.rows().get(at);
      if (keyed.isHeld()) {
        Hold hold = hold(keyed, row, calledAt);
        parts.add(
            new Admission.Part(
                keyed.definition(), keyed.subject(), hold, units -> end(keyed, row, hold, units)));
      } else {
        parts.add(
            new Admission.Part(
                keyed.definition(), keyed.subject(), null, units -> settle(keyed, row, units)));
      }
    }
    return new Admission(owner, decision, id, parts);
  }

  private Hold hold(Keyed keyed, Decision row, long calledAt) {
    boolean isOnServer = row.source() == Source.SERVER;
    Hold.Renewal renewal =
        (until, signal) ->
            keyed.isReservation()
                ? ending.renewReservation(keyed, until, signal)
                : ending.renewLease(keyed, until, signal);
    return new Hold(loop, keyed.holdTtl().toNanos(), calledAt, isOnServer, renewal);
  }

  /** Ends a lease or a reservation. */
  private CompletableFuture<Boolean> end(
      Keyed keyed, Decision row, Hold hold, @Nullable Long units) {
    if (!mayBeThere(row)) {
      return CompletableFuture.completedFuture(true);
    }
    if (!keyed.isReservation()) {
      return ending.release(keyed, hold.until(), true);
    }
    return units == null
        ? ending.cancel(keyed, hold.until(), true)
        : ending.commit(keyed, units, hold.until(), row.source() == Source.SERVER);
  }

  /** Charges or refunds the difference between the cost of a plain rule and what its work took. */
  private CompletableFuture<Boolean> settle(Keyed keyed, Decision row, @Nullable Long units) {
    // A call that only shadow mode allowed took nothing.
    if (units == null || row.source() != Source.SERVER || !row.wouldAllow()) {
      return CompletableFuture.completedFuture(true);
    }
    return ending.settle(keyed, units - keyed.cost());
  }

  /** Returns true if the server may hold the lease or the reservation of a row. */
  private static boolean mayBeThere(Decision row) {
    return row.source() == Source.SERVER
        || row.source() == Source.ERROR && Errors.mayHaveRun(row.error());
  }
}
