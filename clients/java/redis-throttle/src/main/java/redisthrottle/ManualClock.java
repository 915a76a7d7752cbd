package redisthrottle;

import java.util.List;
import java.util.PriorityQueue;
import org.jspecify.annotations.Nullable;

/**
 * A time that stands still until a test moves it. The timers of its clocks run in the thread that
 * does.
 */
final class ManualClock {
  /** The start: Monday, 2024-01-01 00:00:00 UTC. */
  private static final long START_NS = 1_704_067_200_000_000_000L;

  private record Timer(long at, long number, Clock owner, Runnable task)
      implements Comparable<Timer> {
    @Override
    public int compareTo(Timer other) {
      return at == other.at ? Long.compare(number, other.number) : Long.compare(at, other.at);
    }
  }

  private final PriorityQueue<Timer> timers = new PriorityQueue<>();
  private volatile long now;
  private long number;

  long nanos() {
    return now;
  }

  /** Returns a clock for one limiter, whose close cancels the timers of that limiter. */
  Clock view() {
    return new View();
  }

  private final class View implements Clock {
    private boolean isClosed;

    @Override
    public long nanos() {
      return now;
    }

    @Override
    public long wallNanos() {
      return START_NS + now;
    }

    @Override
    public Runnable after(long nanos, Runnable task) {
      synchronized (timers) {
        Timer timer = new Timer(now + nanos, number++, this, task);
        if (!isClosed) {
          timers.add(timer);
        }
        return () -> cancel(timer);
      }
    }

    @Override
    public boolean handOver(Runnable task) {
      return false;
    }

    @Override
    public void runAside(Runnable task) {
      task.run();
    }

    @Override
    public void close() {
      synchronized (timers) {
        isClosed = true;
        timers.removeIf(timer -> timer.owner == this);
      }
    }
  }

  private void cancel(Timer timer) {
    synchronized (timers) {
      timers.remove(timer);
    }
  }

  /** Moves the time to an instant, and runs the timers that are due, each at its own instant. */
  void runUntil(long end) {
    for (Timer next = due(end); next != null; next = due(end)) {
      next.task.run();
    }
    now = Math.max(now, end);
  }

  /**
   * Moves the time as in a pause of the process: the due timers of one clock run first, and all run
   * at its end.
   */
  void pause(long nanos, Clock first) {
    now += nanos;
    List<Timer> early;
    synchronized (timers) {
      early = timers.stream().filter(one -> one.owner == first && one.at <= now).sorted().toList();
      timers.removeAll(early);
    }
    early.forEach(one -> one.task.run());
    runUntil(now);
  }

  private @Nullable Timer due(long end) {
    synchronized (timers) {
      Timer next = timers.peek();
      if (next == null || next.at > end) {
        return null;
      }
      now = Math.max(now, next.at);
      return timers.poll();
    }
  }

  /** Returns the instant of the next timer; the largest value if there is none. */
  long nextAt() {
    synchronized (timers) {
      Timer next = timers.peek();
      return next == null ? Long.MAX_VALUE : next.at;
    }
  }
}
