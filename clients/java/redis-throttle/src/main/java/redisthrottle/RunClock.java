package redisthrottle;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Counts the time in which the process ran while something waited for a node, and holds the
 * deadlines in that time. They share one timer, because nearly all calls end before their deadline.
 * Each tick passes through the thread of the driver, so that a pause of the process, or of that
 * thread alone, counts as one tick, and what has arrived is read before a deadline ends anything.
 */
final class RunClock {
  /** The deadline of what has none. */
  static final long NEVER = Long.MAX_VALUE;

  /** The time by which a timer may be late and still count in full. */
  private static final long SLACK_NS = 10_000_000;

  /** Something that waits for the node. */
  abstract static class Due {
    /** The index in the list; -1 while it is not in the list. */
    private int place = -1;

    /** The deadline in run time. */
    long endsAt = NEVER;

    /** The instant by the clock at which it ends even if the process hardly runs. */
    long endsAtLatest = NEVER;

    /** Ends the wait. Called when the deadline passes first. */
    abstract void expire();

    /** Called when the first dial to the node has ended: its time did not count. */
    void restart() {}
  }

  /** The node whose time is counted. */
  interface Owner {
    /**
     * Returns the instant at which the node is silent; {@link #NEVER} if no command waits for a
     * reply.
     */
    long silentAt();

    /** Runs an act once what has arrived was read. */
    void whenRead(Runnable act);

    /** Called at each tick, at an instant in run time. */
    void tick(long run);
  }

  private final Loop loop;
  private final long tickNs;
  private final long timeoutNs;
  private final Owner owner;

  /** All that waits, in no order. */
  private final List<Due> due = new ArrayList<>();

  /** Cancels the timer; null while none runs. */
  private @Nullable Runnable stop;

  /** True from the timer until what has arrived is read. */
  private boolean isReading;

  /** The run time at {@code countedAt}. */
  private long run;

  private long countedAt;

  /** The time from {@code countedAt} to the timer. */
  private long planned;

  RunClock(Loop loop, long tickNs, long timeoutNs, Owner owner) {
    this.loop = loop;
    this.tickNs = tickNs;
    this.timeoutNs = timeoutNs;
    this.owner = owner;
  }

  /** Returns the run time. It stands still while nothing waits. */
  long nanos() {
    return stop == null ? run : run + passed(loop.nanos());
  }

  private long passed(long now) {
    return Math.min(now - countedAt, planned + SLACK_NS);
  }

  void add(Due one) {
    one.place = due.size();
    due.add(one);
    wake(one.endsAt);
  }

  /** Removes what has ended. */
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

  /** Calls an act for all that waits. The act may end some. */
  void each(Consumer<Due> act) {
    List.copyOf(due).forEach(act);
  }

  /** Makes sure that the time counts. No silence is shorter than the timer's time. */
  void start() {
    if (stop == null) {
      countedAt = loop.nanos();
      plan();
    }
  }

  /** Makes sure that the timer fires at an instant. */
  void wake(long at) {
    if (stop == null) {
      start();
    } else if (at < run + planned && !isReading) {
      stop.run();
      count();
      plan();
    }
  }

  /** Plans the timer again after deadlines have changed. */
  void replan() {
    wake(earliest());
  }

  private void count() {
    long now = loop.nanos();
    run += passed(now);
    countedAt = now;
    stop = null;
  }

  private void plan() {
    long next = earliest();
    if (due.isEmpty() && next == NEVER) {
      return;
    }
    planned = next > run ? Math.min(tickNs, next - run) : tickNs;
    stop = loop.after(planned, this::fire);
  }

  private void fire() {
    isReading = true;
    stop = loop.after(timeoutNs, this::tooLate);
    owner.whenRead(() -> loop.execute(this::read));
  }

  /** Ends what has waited too long by the clock while the driver's thread does not run. */
  private void tooLate() {
    stop = loop.after(timeoutNs, this::tooLate);
    expire(-1);
  }

  private void read() {
    isReading = false;
    if (stop != null) {
      stop.run();
    }
    count();
    try {
      owner.tick(run);
    } finally {
      replan();
    }
  }

  private long earliest() {
    long earliest = owner.silentAt();
    for (Due one : due) {
      earliest = Math.min(earliest, one.endsAt);
    }
    return earliest;
  }

  private static boolean isTooLate(Due one, long now) {
    return one.endsAtLatest != NEVER && now - one.endsAtLatest >= 0;
  }

  private static boolean isOver(Due one, long at, long now) {
    return one.endsAt <= at || isTooLate(one, now);
  }

  /** Ends what is due at an instant in run time. */
  void expire(long at) {
    long now = loop.nanos();
    for (Due one : List.copyOf(due)) {
      if (one.place >= 0 && isOver(one, at, now)) {
        delete(one);
        one.expire();
      }
    }
  }
}
