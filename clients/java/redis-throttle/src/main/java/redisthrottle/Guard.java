package redisthrottle;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** A lease or an admission, which ends once: by its block, or with the limiter. */
abstract class Guard {
  /**
   * The limiter that created a guard.
   *
   * @param ended called when a guard has ended
   */
  record Owner(Loop loop, Entry entry, Consumer<Guard> ended) {}

  final Owner owner;
  private final AtomicReference<@Nullable CompletableFuture<Void>> end = new AtomicReference<>();

  Guard(Owner owner) {
    this.owner = owner;
  }

  /** Returns true from the begin of the end. */
  final boolean hasEnded() {
    return end.get() != null;
  }

  /** Ends the renewals of what is held. Called in the loop. */
  abstract void endRenewals();

  /** Ends what is held. Called once, in the loop. */
  abstract CompletableFuture<?> sendEnds();

  /**
   * Ends the renewals and sends nothing: what is held expires after its ttl, unless it is ended
   * before. A middleware calls it when the client has left and the work may go on.
   */
  public final void stopRenewing() {
    owner.loop.execute(this::endRenewals);
  }

  /** Ends the guard. Later calls wait for the first. */
  final CompletableFuture<Void> end() {
    CompletableFuture<Void> first = new CompletableFuture<>();
    if (!end.compareAndSet(null, first)) {
      return Checks.present("end", end.get());
    }
    owner.loop.execute(
        () -> {
          owner.ended.accept(this);
          Errors.begun(this::sendEnds).whenComplete((done, error) -> first.complete(null));
        });
    return first;
  }
}
