package redisthrottle;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;
import org.jspecify.annotations.Nullable;

/**
 * Runs the tasks of one limiter one after the other, in the order in which they came. It has no
 * thread: the caller that finds it idle runs the tasks, unless there are too many. So the state of
 * a limiter needs no locks, and no thread waits. No task blocks.
 */
final class Loop implements Executor {
  private static final System.Logger LOGGER = System.getLogger("redisthrottle");

  /** The number of tasks in a row after which results leave a loop that is never idle. */
  private static final int TASKS_MAX = 64;

  /** The number of tasks that a thread runs before it leaves the others to the clock's thread. */
  private static final int BATCH = 4 * TASKS_MAX;

  private static final AtomicIntegerFieldUpdater<Loop> BUSY =
      AtomicIntegerFieldUpdater.newUpdater(Loop.class, "busy");

  private final Clock clock;
  private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
  private final Queue<Runnable> leaving = new ConcurrentLinkedQueue<>();

  /** 1 while a thread runs the tasks. A plain write ends that, for which a full stack has room. */
  private volatile int busy;

  private final long epochNanos;

  /** Runs what the tasks report. */
  final Reports reports;

  /** The thread that runs a task now. */
  private volatile @Nullable Thread running;

  Loop(Clock clock) {
    this.clock = clock;
    this.epochNanos = clock.wallNanos() - clock.nanos();
    this.reports = new Reports(clock::runAside);
  }

  @Override
  public void execute(Runnable task) {
    tasks.add(task);
    drain(false);
  }

  /** Runs the tasks, if no other thread does. */
  private void drain(boolean isHandedOver) {
    boolean isOwner = isHandedOver;
    int tasksRun = 0;
    try {
      isOwner = isOwner || BUSY.compareAndSet(this, 0, 1);
      while (isOwner) {
        Runnable task = tasks.poll();
        if (task == null) {
          isOwner = false;
          busy = 0;
          isOwner = !tasks.isEmpty() && BUSY.compareAndSet(this, 0, 1);
          continue;
        }
        running = Thread.currentThread();
        attempt(task);
        reports.flush();
        running = null;
        if (++tasksRun % TASKS_MAX == 0) {
          leave();
        }
        // A thread of the driver that ran the tasks of busy callers for ever would read no replies.
        if (tasksRun == BATCH && clock.handOver(() -> drain(true))) {
          return;
        }
      }
    } catch (Error e) {
      // The stack or the memory of this thread is used up, but not that of others.
      if (isOwner) {
        running = null;
        busy = 0;
        clock.handOver(() -> execute(() -> {}));
      }
      throw e;
    }
    if (tasksRun > 0) {
      leave();
    }
  }

  private void attempt(Runnable task) {
    try {
      task.run();
    } catch (RuntimeException | Error e) {
      reports.send(() -> LOGGER.log(System.Logger.Level.ERROR, "redis-throttle: a task failed", e));
    }
  }

  /**
   * Runs an act when the loop is idle again, or after some tasks; call it in a task of this loop. A
   * thread that the act wakes may displace this one, and its next call would wait for the loop.
   */
  void afterwards(Runnable act) {
    leaving.add(act);
  }

  private void leave() {
    for (Runnable act = leaving.poll(); act != null; act = leaving.poll()) {
      attempt(act);
    }
  }

  /** Returns true in a task of this loop: waiting there would never end. */
  boolean isMine() {
    return running == Thread.currentThread();
  }

  /** Returns the nanoseconds of a clock that never goes back. */
  long nanos() {
    return clock.nanos();
  }

  /** Returns the nanoseconds since 1970, by a clock that never goes back. */
  long wallNanos() {
    return epochNanos + clock.nanos();
  }

  /** Runs a task after some time. The result cancels it; call it in a task of this loop. */
  Runnable after(long nanos, Runnable task) {
    Timer timer = new Timer(task);
    timer.cancel = clock.after(Math.max(0, nanos), () -> execute(timer));
    return timer::stop;
  }

  /** A task that may be cancelled between the clock's thread and the loop. */
  private static final class Timer implements Runnable {
    private final Runnable task;
    private boolean isStopped;
    private Runnable cancel = () -> {};

    Timer(Runnable task) {
      this.task = task;
    }

    @Override
    public void run() {
      if (!isStopped) {
        isStopped = true;
        task.run();
      }
    }

    void stop() {
      isStopped = true;
      cancel.run();
    }
  }

  void close() {
    clock.close();
  }
}
