package redisthrottle;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Slots of the renewals or ends at one node, which do not stand in line with its other calls. */
final class Slots {
  private final Loop loop;
  private int free;
  private @Nullable RuntimeException closedBy;
  private final Deque<CompletableFuture<Boolean>> waiting = new ArrayDeque<>();

  Slots(Loop loop, int count) {
    this.loop = loop;
    this.free = count;
  }

  /** Takes a slot, or waits for one. The result is false if none was free in time. */
  CompletableFuture<Boolean> take(long until) {
    if (closedBy != null) {
      return CompletableFuture.failedFuture(closedBy);
    }
    if (free > 0) {
      free--;
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

  /** Returns a slot. The end or renewal that has waited longest gets it. */
  void put() {
    CompletableFuture<Boolean> next = waiting.poll();
    if (next == null) {
      free++;
    } else {
      // As a task: with an open breaker all that wait would end inside of one another.
      loop.execute(() -> next.complete(true));
    }
  }

  /** Refuses those that wait, and all later ones, with an error. */
  void close(RuntimeException error) {
    closedBy = error;
    for (CompletableFuture<Boolean> one = waiting.poll(); one != null; one = waiting.poll()) {
      one.completeExceptionally(error);
    }
  }
}
