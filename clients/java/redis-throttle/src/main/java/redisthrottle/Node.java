package redisthrottle;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** The calls to one server, or to one primary of a cluster. */
final class Node {
  /** The number of renewals and ends in flight to a node, in addition to {@code maxInFlight}. */
  private static final int LEASE_SLOTS = 8;

  /** Null for a single server. */
  final @Nullable String name;

  final Breaker breaker;
  int inFlight;

  /** The number of calls so far. */
  long entered;

  /**
   * The number of calls at the last failure. A failure of one of these calls is part of that one:
   * all calls in flight lose a connection together.
   */
  long failedThrough;

  /** The number of answers that arrived. */
  long answers;

  private final Loop loop;
  private int freeSlots = LEASE_SLOTS;
  private final Deque<CompletableFuture<Boolean>> waiting = new ArrayDeque<>();

  Node(@Nullable String name, Loop loop, Breaker breaker) {
    this.name = name;
    this.loop = loop;
    this.breaker = breaker;
  }

  /** Takes a lease slot, or waits for one. The result is false if none was free in time. */
  CompletableFuture<Boolean> takeSlot(long until) {
    if (freeSlots > 0) {
      freeSlots--;
      return CompletableFuture.completedFuture(true);
    }
    CompletableFuture<Boolean> turn = new CompletableFuture<>();
    waiting.add(turn);
    Runnable stop =
        loop.after(
            until - loop.nanos(),
            () -> {
              if (waiting.remove(turn)) {
                turn.complete(false);
              }
            });
    return turn.whenComplete((isTaken, error) -> stop.run());
  }

  /** Returns a lease slot. The end or renewal that has waited longest gets it. */
  void putSlot() {
    CompletableFuture<Boolean> next = waiting.poll();
    if (next == null) {
      freeSlots++;
    } else {
      // As a task: with an open breaker all that wait would end inside of one another.
      loop.execute(() -> next.complete(true));
    }
  }
}
