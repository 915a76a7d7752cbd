package redisthrottle;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A server in this process, for the tests of an application. Its clock, which is also that of the
 * limiters that {@link #limiter} builds, stands still until {@link #advance} moves it.
 *
 * <p>It decides as a server with the module does, and a policy by its fallback. Quotas are in UTC;
 * one with a zone or a start is refused.
 */
public final class FakeServer implements Connector {
  private final ManualClock clock = new ManualClock();
  private final ReentrantLock lock = new ReentrantLock();
  private final FakeKeys keys = new FakeKeys(clock.view());
  private final List<List<String>> received = new CopyOnWriteArrayList<>();
  private volatile boolean isAway;
  private volatile boolean isSilent;

  /** Makes a server that answers. */
  public FakeServer() {}

  /** Returns a builder of a limiter over this server and its clock. */
  public LimiterBuilder limiter() {
    return new LimiterBuilder(this, clock::view, Runnable::run).jitter(() -> 1);
  }

  /**
   * Moves the clock, and runs what is due until then.
   *
   * @throws InvalidArgumentException for a negative time, because the clock never goes back
   */
  public void advance(Duration time) {
    if (Checks.present("time", time).isNegative()) {
      throw Checks.invalid("time", "a duration from 0");
    }
    clock.runUntil(clock.nanos() + time.toNanos());
  }

  /** Refuses connections and loses commands, until {@link #answer}. */
  public void goAway() {
    isAway = true;
  }

  /**
   * Sends no replies, until {@link #answer}. Commands that arrive are not executed. A {@link
   * Limiter#close} waits for their calls until the clock has moved by the time-out.
   */
  public void hang() {
    isSilent = true;
  }

  /** Answers again. */
  public void answer() {
    isAway = false;
    isSilent = false;
  }

  /** Returns the commands that arrived, in order. */
  public List<List<String>> received() {
    return List.copyOf(received);
  }

  @Override
  public CompletionStage<Connection> connect(@Nullable String node, Duration timeout) {
    return isAway
        ? CompletableFuture.failedFuture(new IOException("connection refused"))
        : CompletableFuture.completedFuture(new FakeConnection());
  }

  private final class FakeConnection implements Connection {
    private volatile boolean isClosed;

    @Override
    public CompletionStage<@Nullable Object> send(List<String> words) {
      received.add(List.copyOf(words));
      if (isAway) {
        isClosed = true;
        return CompletableFuture.failedFuture(new IOException("the connection was lost"));
      }
      if (isSilent) {
        return new CompletableFuture<>();
      }
      lock.lock();
      try {
        return CompletableFuture.completedFuture(keys.reply(words));
      } catch (ServerErrorException e) {
        return CompletableFuture.failedFuture(e);
      } finally {
        lock.unlock();
      }
    }

    @Override
    public boolean isOpen() {
      return !isClosed;
    }

    @Override
    public void close() {
      isClosed = true;
    }
  }
}
