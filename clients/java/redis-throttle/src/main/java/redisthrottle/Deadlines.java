package redisthrottle;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The deadlines of calls. They share one timer, because nearly all calls end before their deadline.
 */
final class Deadlines {
  /** A call that has a deadline. */
  abstract static class Due {
    /** The call's index in the list of deadlines; -1 while it is not in the list. */
    private int place = -1;

    /** Returns the instant of the deadline. */
    abstract long endsAt();

    /** Ends the call. Called when the deadline passes first. */
    abstract void expire();
  }

  /** A timer that fires later than this shows that the process was busy. */
  static final long BUSY_NS = 20_000_000;

  /**
   * The maximum time that calls get in addition if the process was busy at their deadline. Their
   * replies may have arrived and not been read.
   */
  private static final long EXTRA_MAX_NS = 100_000_000;

  private final Loop loop;

  /** The calls, in no order. */
  private final List<Due> due = new ArrayList<>();

  private @Nullable Runnable stop;
  private long wakesAt;

  /** True if the calls that are due have had their additional time. */
  private boolean isExtended;

  Deadlines(Loop loop) {
    this.loop = loop;
  }

  void add(Due one) {
    one.place = due.size();
    due.add(one);
    wakeAt(one.endsAt());
  }

  /** Removes a call that has ended. */
  void delete(Due one) {
    int place = one.place;
    if (place < 0) {
      return;
    }
    one.place = -1;
    Due last = due.remove(due.size() - 1);
    if (last != one) {
      due.set(place, last);
      last.place = place;
    }
  }

  /** Calls an act for each call. The act may end calls. */
  void each(Consumer<Due> act) {
    List.copyOf(due).forEach(act);
  }

  private void wakeAt(long at) {
    if (stop != null && wakesAt - at <= 0) {
      return;
    }
    if (stop != null) {
      stop.run();
    }
    wakesAt = at;
    stop = loop.after(at - loop.nanos(), () -> pass(at));
  }

  /** Expires the calls that are due. */
  private void pass(long at) {
    stop = null;
    if (due.isEmpty()) {
      isExtended = false;
      return;
    }
    long now = Math.max(at, loop.nanos());
    long late = now - at;
    if (late > BUSY_NS && !isExtended) {
      isExtended = true;
      wakeAt(now + Math.min(late, EXTRA_MAX_NS));
      return;
    }
    isExtended = false;
    long next = Long.MAX_VALUE;
    for (Due one : List.copyOf(due)) {
      if (one.endsAt() - now > 0) {
        next = Math.min(next, one.endsAt() - now);
      } else if (one.place >= 0) {
        delete(one);
        one.expire();
      }
    }
    if (next < Long.MAX_VALUE) {
      wakeAt(now + next);
    }
  }
}
