package redisthrottle;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/**
 * A permit. While it is held, it renews itself after each third of its ttl. End it with
 * try-with-resources. It is not a lock: a process that was stopped for longer than the ttl does not
 * notice the loss.
 */
public final class Lease extends Guard implements AutoCloseable {
  private final Decision decision;
  private final String id;
  private final Hold hold;
  private final Supplier<CompletableFuture<Boolean>> release;

  Lease(
      Owner owner,
      Decision decision,
      String id,
      Hold hold,
      Supplier<CompletableFuture<Boolean>> release) {
    super(owner);
    this.decision = decision;
    this.id = id;
    this.hold = hold;
    this.release = release;
    hold.renewFor(this);
  }

  /** Returns the decision that allowed the lease. */
  public Decision decision() {
    return decision;
  }

  /** Returns the name of the holder. */
  public String id() {
    return id;
  }

  /**
   * Returns true if this process still holds the permit, by its own clock. If {@link OnError}
   * allowed the lease, it is held until it is released.
   */
  public boolean isHeld() {
    return hold.isHeld();
  }

  /**
   * Renews the permit for another ttl. A lease renews itself: call it only to learn the result.
   *
   * @return false if the lease is lost or released: stop the work then
   * @throws UnavailableException without a final reply
   * @throws CommandRejectedException if the server rejects it
   */
  public boolean renew() {
    return owner.entry().sync(signal -> hold.renew());
  }

  /** Renews the permit as {@link #renew} does. */
  public CompletionStage<Boolean> renewAsync() {
    return owner.entry().async(signal -> hold.renew());
  }

  /**
   * Releases the permit. Later calls wait for the first. Without a final reply, the call returns
   * and the release is repeated until the ttl is over or the limiter is closed. It never throws; if
   * the thread is interrupted, the release goes on and the flag stays set.
   */
  @Override
  public void close() {
    owner.entry().awaitEnd(end());
  }

  /** Releases the permit as {@link #close} does. */
  public CompletionStage<Void> releaseAsync() {
    return owner.entry().outside(end());
  }

  @Override
  void endRenewals() {
    hold.stopRenewing();
  }

  @Override
  CompletableFuture<?> sendEnds() {
    hold.end();
    return release.get();
  }
}
