package redisthrottle;

import java.time.Instant;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
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

  /**
   * Runs a task that may block after those before it, in a thread that runs no timers. Drops it if
   * too many wait. It does not throw.
   */
  void runAside(Runnable task);

  /** Cancels all timers. Later ones do not run. Tasks that may block still run. */
  void close();

  /** Returns the clock of the system, with one daemon thread for its timers. */
  static Clock system() {
    return new SystemClock();
  }

  /** The clock of the system. */
  final class SystemClock implements Clock {
    /** The number of tasks aside that may wait for one that blocks. */
    private static final int ASIDE_MAX = 10_000;

    private final ScheduledThreadPoolExecutor timers;

    /** Has a thread only while there are tasks, and for a second after the last one. */
    private final ThreadPoolExecutor aside;

    SystemClock() {
      timers = new ScheduledThreadPoolExecutor(1, task -> daemon(task, "redis-throttle"));
      timers.setRemoveOnCancelPolicy(true);
      aside =
          new ThreadPoolExecutor(
              0,
              1,
              1,
              TimeUnit.SECONDS,
              new LinkedBlockingQueue<>(ASIDE_MAX),
              task -> daemon(task, "redis-throttle-reports"),
              new ThreadPoolExecutor.DiscardPolicy());
    }

    private static Thread daemon(Runnable task, String name) {
      Thread thread = new Thread(task, name);
      thread.setDaemon(true);
      return thread;
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
    public void runAside(Runnable task) {
      try {
        aside.execute(task);
      } catch (Error e) {
        // The process can have no more threads. The task waits for one.
        return;
      }
    }

    @Override
    public void close() {
      timers.shutdownNow();
      aside.shutdown();
    }
  }
}
