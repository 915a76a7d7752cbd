package redisthrottle;

import java.time.Instant;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The only clock. Deadlines, the breaker, caches and leases use it, so that a test can move it. */
interface Clock {
  /** Returns the nanoseconds since some fixed moment. The value never goes back. */
  long nanos();

  /** Returns the nanoseconds since 1970. */
  long wallNanos();

  /** Runs a task after at least this time, and returns a function that cancels it. */
  Runnable after(long nanos, Runnable task);

  /** Runs a task in the clock's thread. Returns false, and does nothing, if it has none. */
  boolean handOver(Runnable task);

  /** Cancels all tasks. Later ones do not run. */
  void close();

  /** Returns the clock of the system, with one daemon thread for its timers. */
  static Clock system() {
    return new SystemClock();
  }

  /** The clock of the system. */
  final class SystemClock implements Clock {
    private final ScheduledThreadPoolExecutor timers;

    SystemClock() {
      timers =
          new ScheduledThreadPoolExecutor(
              1,
              task -> {
                Thread thread = new Thread(task, "redis-throttle");
                thread.setDaemon(true);
                return thread;
              });
      timers.setRemoveOnCancelPolicy(true);
    }

    @Override
    public long nanos() {
      return System.nanoTime();
    }

    @Override
    public long wallNanos() {
      Instant now = Instant.now();
      return now.getEpochSecond() * 1_000_000_000 + now.getNano();
    }

    @Override
    public Runnable after(long nanos, Runnable task) {
      try {
        Future<?> timer = timers.schedule(task, nanos, TimeUnit.NANOSECONDS);
        return () -> timer.cancel(false);
      } catch (RejectedExecutionException e) {
        return () -> {};
      }
    }

    @Override
    public boolean handOver(Runnable task) {
      try {
        timers.execute(task);
        return true;
      } catch (RejectedExecutionException e) {
        return false;
      }
    }

    @Override
    public void close() {
      timers.shutdownNow();
    }
  }
}
