package redisthrottle;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A result that several callers wait for. They get it in the order in which they came. */
final class Shared<T> {
  private final List<CompletableFuture<T>> waiting = new ArrayList<>();
  private @Nullable CompletableFuture<T> ended;

  /** Returns a future of the result for one caller. */
  CompletableFuture<T> join() {
    if (ended != null) {
      return ended;
    }
    CompletableFuture<T> one = new CompletableFuture<>();
    waiting.add(one);
    return one;
  }

  void complete(T value) {
    if (ended == null) {
      ended = CompletableFuture.completedFuture(value);
      List.copyOf(waiting).forEach(one -> one.complete(value));
    }
  }

  void fail(Throwable error) {
    if (ended == null) {
      ended = CompletableFuture.failedFuture(error);
      List.copyOf(waiting).forEach(one -> one.completeExceptionally(error));
    }
  }
}
