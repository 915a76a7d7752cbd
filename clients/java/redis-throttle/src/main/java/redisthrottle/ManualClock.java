package redisthrottle;

import java.util.Comparator;
import java.util.PriorityQueue;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/** A clock that stands still until a test moves it. Its timers run in the thread that does. */
final class ManualClock implements Clock {
  /** The start: Monday, 2024-01-01 00:00:00 UTC. */
  private static final long START_NS = 1_704_067_200_000_000_000L;

  private record Timer(long at, long number, Runnable task) {}

  private final ReentrantLock lock = new ReentrantLock();
  private final PriorityQueue<Timer> timers =
      new PriorityQueue<>(Comparator.comparingLong(Timer::at).thenComparingLong(Timer::number));
  private volatile long now;
  private long number;

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
    lock.lock();
    try {
      Timer timer = new Timer(now + nanos, number++, task);
      timers.add(timer);
      return () -> cancel(timer);
    } finally {
      lock.unlock();
    }
  }

  private void cancel(Timer timer) {
    lock.lock();
    try {
      timers.remove(timer);
    } finally {
      lock.unlock();
    }
  }

  /** Does nothing: several limiters may share the clock. */
  @Override
  public void close() {}

  /** Returns a clock for one limiter, whose close cancels the timers of that limiter. */
  Clock view() {
    return new View();
  }

  private final class View implements Clock {
    private volatile boolean isClosed;

    @Override
    public long nanos() {
      return ManualClock.this.nanos();
    }

    @Override
    public long wallNanos() {
      return ManualClock.this.wallNanos();
    }

    @Override
    public Runnable after(long nanos, Runnable task) {
      return ManualClock.this.after(
          nanos,
          () -> {
            if (!isClosed) {
              task.run();
            }
          });
    }

    @Override
    public void close() {
      isClosed = true;
    }
  }

  /** Moves the clock, and runs the timers that are due, each at its own instant. */
  void advance(long nanos) {
    long end = now + nanos;
    for (Timer next = due(end); next != null; next = due(end)) {
      next.task.run();
    }
    now = end;
  }

  private @Nullable Timer due(long end) {
    lock.lock();
    try {
      Timer next = timers.peek();
      if (next == null || next.at > end) {
        return null;
      }
      now = Math.max(now, next.at);
      return timers.poll();
    } finally {
      lock.unlock();
    }
  }
}
