package redisthrottle;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;
import org.jspecify.annotations.Nullable;

/**
 * A caller: signals to its call that it gave up, and adds up the time that it has waited. It
 * belongs to the loop.
 */
final class Signal {
  /** A signal of a call that is not given up. */
  static final Signal NONE = new Signal();

  private static final AtomicIntegerFieldUpdater<Signal> OVER =
      AtomicIntegerFieldUpdater.newUpdater(Signal.class, "over");

  /** The acts, a list in the order in which they came. A set would cost each call more memory. */
  private @Nullable Act first;

  private @Nullable Act last;
  private boolean isAborted;
  private long spentNs;

  /** 1 when the call has a result. Any thread reads it. */
  private volatile int over;

  /** What the thread that gets the result reports. */
  @Nullable List<Runnable> reports;

  /** Notes that the call has a result. Returns false if it had one before. */
  boolean end() {
    return OVER.compareAndSet(this, 0, 1);
  }

  /** Returns true when the call has a result: to give it up has no meaning then. */
  boolean isOver() {
    return over != 0;
  }

  boolean isAborted() {
    return isAborted;
  }

  void throwIfAborted() {
    if (isAborted) {
      throw cancelled();
    }
  }

  /** Returns the error of a call whose caller gave up. */
  static CancellationException cancelled() {
    return new CancellationException("the call was cancelled");
  }

  /** Returns the part of a time-out that the caller has not waited. */
  long left(long timeoutNs) {
    return timeoutNs - spentNs;
  }

  /** Adds the time of a call that has ended. */
  void spend(long nanos) {
    if (this != NONE) {
      spentNs += nanos;
    }
  }

  /** Runs an act when the caller gives up. The result takes the act back. */
  Runnable whenAborted(Runnable act) {
    if (this == NONE) {
      return () -> {};
    }
    Act one = new Act(act);
    one.add();
    return one;
  }

  void abort() {
    if (isAborted) {
      return;
    }
    isAborted = true;
    List<Runnable> acts = new ArrayList<>();
    for (Act one = first; one != null; one = one.after) {
      acts.add(one.act);
    }
    acts.forEach(Runnable::run);
  }

  /** An act in the list of the signal. To run it takes the act back. */
  private final class Act implements Runnable {
    final Runnable act;
    @Nullable Act before;
    @Nullable Act after;
    boolean isListed;

    Act(Runnable act) {
      this.act = act;
    }

    void add() {
      isListed = true;
      before = last;
      last = this;
      if (before == null) {
        first = this;
      } else {
        before.after = this;
      }
    }

    @Override
    public void run() {
      if (!isListed) {
        return;
      }
      isListed = false;
      if (before == null) {
        first = after;
      } else {
        before.after = after;
      }
      if (after == null) {
        last = before;
      } else {
        after.before = before;
      }
    }
  }
}
