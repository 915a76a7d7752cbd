package redisthrottle;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;

/** Tells a call that its caller gave up. It belongs to the loop. */
final class Signal {
  /** A signal of a call that is not given up. */
  static final Signal NONE = new Signal();

  private final Set<Runnable> acts = new LinkedHashSet<>();
  private boolean isAborted;

  /** True when the call has a result: to give it up has no meaning then. Any thread reads it. */
  volatile boolean isOver;

  boolean isAborted() {
    return isAborted;
  }

  void throwIfAborted() {
    if (isAborted) {
      throw new CancellationException("the call was cancelled");
    }
  }

  /** Runs an act when the caller gives up. The result takes the act back. */
  Runnable whenAborted(Runnable act) {
    if (this == NONE) {
      return () -> {};
    }
    // A wrapper, because the same act may be added twice.
    Runnable one = act::run;
    acts.add(one);
    return () -> acts.remove(one);
  }

  void abort() {
    if (isAborted) {
      return;
    }
    isAborted = true;
    List.copyOf(acts).forEach(Runnable::run);
  }
}
