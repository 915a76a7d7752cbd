package redisthrottle;

import java.util.Comparator;
import java.util.PriorityQueue;
import java.util.concurrent.CompletableFuture;

/** A clock that stands still until a test moves it. Its timers run in the thread that does. */
final class FrozenClock implements Clock {
  private record Timer(long at, long number, Runnable task) {}

  private final PriorityQueue<Timer> timers =
      new PriorityQueue<>(Comparator.comparingLong(Timer::at).thenComparingLong(Timer::number));
  private long now;
  private long number;
  private boolean isClosed;

  @Override
  public long nanos() {
    return now;
  }

  @Override
  public long wallNanos() {
    return 1_767_225_600_000_000_000L + now;
  }

  @Override
  public Runnable after(long nanos, Runnable task) {
    if (isClosed) {
      return () -> {};
    }
    Timer timer = new Timer(now + nanos, number++, task);
    timers.add(timer);
    return () -> timers.remove(timer);
  }

  @Override
  public void close() {
    isClosed = true;
    timers.clear();
  }

  /** Returns true if nothing is left to run after a close. */
  boolean isIdle() {
    return timers.isEmpty();
  }

  long nowMs() {
    return now / 1_000_000;
  }

  /** Moves the clock, and runs the timers that are due until then. */
  void runUntil(long nanos) {
    while (!timers.isEmpty() && timers.peek().at <= nanos) {
      Timer next = timers.poll();
      now = Math.max(now, next.at);
      next.task.run();
    }
    now = Math.max(now, nanos);
  }

  /** Moves the clock from timer to timer until the result is there. */
  void runDuring(CompletableFuture<?> result, long nanos) {
    long end = now + nanos;
    while (!result.isDone() && !timers.isEmpty() && timers.peek().at <= end) {
      runUntil(timers.peek().at);
    }
    if (!result.isDone()) {
      throw new AssertionError("an action does not end");
    }
  }
}
