package redisthrottle;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/** Leads callers into the loop, and their results out of it. */
final class Entry {
  private final Loop loop;
  private final Executor executor;

  Entry(Loop loop, Executor executor) {
    this.loop = loop;
    this.executor = executor;
  }

  /**
   * Begins a call. Its result arrives on the executor, because the caller's functions may block.
   * Ending the result first, by a cancellation or a time-out of its own, gives the call up.
   */
  <T> CompletableFuture<T> async(Work<T> work) {
    return begun(work, new Signal(), false);
  }

  /**
   * Begins a call.
   *
   * @param isAwaited true if a thread waits for the result; it then runs the reports
   */
  private <T> CompletableFuture<T> begun(Work<T> work, Signal signal, boolean isAwaited) {
    Executor completing = isAwaited ? loop::afterwards : executor;
    CompletableFuture<T> outside = new CompletableFuture<>();
    outside.whenComplete(
        (result, error) -> {
          if (!signal.isOver()) {
            loop.execute(signal::abort);
          }
        });
    loop.execute(
        () -> {
          if (outside.isDone()) {
            return;
          }
          inside(work, signal)
              .whenComplete(
                  (result, error) -> {
                    signal.reports = loop.reports.take();
                    run(completing, () -> deliver(work, signal, outside, isAwaited, result, error));
                  });
        });
    return outside;
  }

  private static <T> CompletableFuture<T> inside(Work<T> work, Signal signal) {
    try {
      return work.begin(signal);
    } catch (RuntimeException | Error e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  /** Runs an act on an executor. If that is full or shut down, a result must arrive, too. */
  private static void run(Executor executor, Runnable act) {
    try {
      executor.execute(act);
    } catch (RuntimeException | Error e) {
      // Such as the error of a process that can have no more threads.
      act.run();
    }
  }

  private <T> void deliver(
      Work<T> work,
      Signal signal,
      CompletableFuture<T> outside,
      boolean isAwaited,
      T result,
      @Nullable Throwable error) {
    // An executor may run an act although it threw.
    if (!signal.end()) {
      return;
    }
    if (!isAwaited) {
      report(signal);
    }
    if (error != null) {
      Throwable cause = Errors.cause(error);
      boolean isBare = !isAwaited && cause instanceof UnavailableException;
      outside.completeExceptionally(isBare ? ((UnavailableException) cause).traced() : cause);
    } else if (!outside.complete(result)) {
      loop.execute(() -> work.undo(result));
    }
    if (isAwaited && outside.isCancelled()) {
      loop.reports.sendAll(signal.reports);
    }
  }

  /** Runs the reports of a call in the thread of the executor, which may be that of the loop. */
  private void report(Signal signal) {
    if (loop.isMine()) {
      loop.reports.sendAll(signal.reports);
    } else {
      loop.reports.run(signal.reports);
    }
  }

  /**
   * Waits for a call. If the thread is interrupted, the call is given up, and the flag stays set.
   */
  <T> T sync(Work<T> work) {
    if (isHook()) {
      throw new IllegalStateException("a blocking method was called in a hook of decisions");
    }
    if (Thread.currentThread().isInterrupted()) {
      throw new CallInterruptedException();
    }
    Signal signal = new Signal();
    CompletableFuture<T> result = begun(work, signal, true);
    try {
      return await(result);
    } finally {
      if (!result.isCancelled()) {
        loop.reports.run(signal.reports);
      }
    }
  }

  private boolean isHook() {
    return loop.isMine() || loop.reports.isMine();
  }

  /** Returns a result that arrives on the executor. Cancelling it has no effect on the call. */
  <T> CompletableFuture<T> outside(CompletableFuture<T> inside) {
    return inside.thenApplyAsync(result -> result, executor);
  }

  /** Waits for an end, which goes on if the thread is interrupted. A hook does not wait. */
  void awaitEnd(CompletableFuture<Void> end) {
    if (isHook()) {
      return;
    }
    try {
      end.get();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException e) {
      throw thrown(e);
    }
  }

  /** Waits for a result, and cancels it if the thread is interrupted. */
  static <T> T await(CompletableFuture<T> result) {
    try {
      return result.get();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      if (result.cancel(false)) {
        throw new CallInterruptedException();
      }
      // The result came first: the caller gets it, and the flag.
      return ended(result);
    } catch (ExecutionException e) {
      throw thrown(e);
    }
  }

  private static <T> T ended(CompletableFuture<T> result) {
    try {
      return result.join();
    } catch (CompletionException e) {
      throw thrown(e);
    }
  }

  private static RuntimeException thrown(Exception error) {
    Throwable cause = Errors.cause(error);
    if (cause instanceof Error fatal) {
      throw fatal;
    }
    RuntimeException known = cause instanceof RuntimeException one ? one : Errors.classified(cause);
    return Errors.traced(known);
  }
}
