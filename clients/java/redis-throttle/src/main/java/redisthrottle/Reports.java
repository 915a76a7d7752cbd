package redisthrottle;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Runs the hooks and writes the log lines, which may block. So they never run in the loop, whose
 * thread may be that which reads replies: a call's hooks run in the thread that gets its result,
 * all else in a thread of its own.
 */
final class Reports {
  private final Consumer<Runnable> background;

  /** What the current task of the loop has to report; null if it is nothing. */
  private @Nullable List<Runnable> collected;

  /** The number of reports that the background has and that have not ended. */
  private final AtomicInteger sent = new AtomicInteger();

  /** The number of threads that run a report, so that {@link #isMine} costs nothing without one. */
  private final AtomicInteger running = new AtomicInteger();

  private final ThreadLocal<Boolean> isRunning = new ThreadLocal<>();

  /**
   * Makes reports.
   *
   * @param background runs a report after those before it, and does not throw
   */
  Reports(Consumer<Runnable> background) {
    this.background = background;
  }

  /** Adds a report of the current task of the loop. */
  void add(Runnable report) {
    List<Runnable> all = collected;
    if (all == null) {
      all = new ArrayList<>(1);
      collected = all;
    }
    all.add(report);
  }

  /** Takes the reports of the current task for the thread that gets its result. */
  @Nullable List<Runnable> take() {
    List<Runnable> taken = collected;
    collected = null;
    return taken;
  }

  /** Sends the reports that nothing has taken to the background. Called after each task. */
  void flush() {
    if (collected != null) {
      sendAll(take());
    }
  }

  void sendAll(@Nullable List<Runnable> reports) {
    if (reports != null) {
      reports.forEach(this::send);
    }
  }

  /** Runs a report in the background. */
  void send(Runnable report) {
    sent.incrementAndGet();
    background.accept(
        () -> {
          try {
            run(List.of(report));
          } finally {
            sent.decrementAndGet();
          }
        });
  }

  /** Runs an act once the background has run what it has now. */
  void whenSent(Runnable act) {
    if (sent.get() == 0) {
      act.run();
    } else {
      background.accept(act);
    }
  }

  /** Runs reports in this thread. */
  void run(@Nullable List<Runnable> reports) {
    if (reports == null) {
      return;
    }
    Boolean before = isRunning.get();
    running.incrementAndGet();
    isRunning.set(true);
    try {
      reports.forEach(Reports::attempt);
    } finally {
      if (before == null) {
        isRunning.remove();
      }
      running.decrementAndGet();
    }
  }

  /** Runs a report. A logger that throws has nowhere to say so, and does not end a call. */
  private static void attempt(Runnable report) {
    try {
      report.run();
    } catch (RuntimeException | Error e) {
      return;
    }
  }

  /** Returns true in a report, such as a hook. */
  boolean isMine() {
    return running.get() != 0 && isRunning.get() != null;
  }
}
