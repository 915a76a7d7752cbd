package redisthrottle;

import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** The part of a call that runs in the loop. */
interface Work<T> {
  /** Begins the call. The signal reports that its caller gave up. */
  CompletableFuture<T> begin(Signal signal);

  /** Gives back a result whose caller gave up. */
  default void undo(T result) {}

  /** Returns a work whose result is given back if its caller gave up. */
  static <T> Work<T> undoing(Work<T> work, Consumer<T> undo) {
    return new Work<>() {
      @Override
      public CompletableFuture<T> begin(Signal signal) {
        return work.begin(signal);
      }

      @Override
      public void undo(T result) {
        undo.accept(result);
      }
    };
  }
}
