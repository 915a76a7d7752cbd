package redisthrottle;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.DoubleSupplier;
import org.jspecify.annotations.Nullable;

/**
 * The connection to one node: one at a time, which is a generation. One that falls silent is
 * retired, and the next call dials another.
 */
final class Line {
  /** The terms on which connections are opened. */
  record Terms(Loop loop, Connector connector, Options options, DoubleSupplier jitter) {}

  private final Terms terms;
  private final Loop loop;
  private final @Nullable String name;
  private @Nullable Connection current;
  private @Nullable Shared<Connection> dial;

  /** True if {@code dialAgainAt} holds. */
  private boolean isPausing;

  private long dialAgainAt;
  private @Nullable CommandRejectedException refusal;
  private boolean hasDialled;
  private long dialledAt;
  private long dialTook;
  private boolean isClosed;

  Line(Terms terms, @Nullable String name) {
    this.terms = terms;
    this.loop = terms.loop;
    this.name = name;
  }

  /** Returns the connection that is open now, or null. */
  @Nullable Connection ready() {
    return current != null && current.isOpen() ? current : null;
  }

  /** Sends a command on a connection that is open or dialled for it. */
  CompletableFuture<@Nullable Object> send(List<String> words, Waiting waiting, long since) {
    Connection open = ready();
    if (open == null) {
      return sendDialled(words, waiting, since);
    }
    return Failures.recovered(
        transmit(open, words),
        error -> {
          if (!(error instanceof NotSentException) || waiting.isEnded()) {
            return CompletableFuture.failedFuture(error);
          }
          // The server closed the connection while it was idle.
          if (current == open) {
            drop();
          }
          return sendDialled(words, waiting, loop.nanos());
        });
  }

  private CompletableFuture<@Nullable Object> sendDialled(
      List<String> words, Waiting waiting, long since) {
    waiting.waits(name);
    return openFor(waiting, since).thenCompose(connection -> transmit(connection, words));
  }

  /** Returns a connection for a call that is about to be sent. */
  CompletableFuture<Connection> openFor(Waiting waiting, long since) {
    return open()
        .thenApply(
            connection -> {
              if (waiting.isEnded()) {
                throw away("its caller gave up");
              }
              long left = waiting.endsAt() - loop.nanos();
              boolean isNew = hasDialled && dialledAt - since >= 0;
              // The first dial of a program may take longer than any answer.
              long needed = Math.min(dialTook, terms.options.timeout.toNanos());
              if (isNew && left < needed && left > -Deadlines.BUSY_NS) {
                String text = "the dial took " + dialTook / 1_000_000 + " ms";
                throw UnavailableException.unsent(Reason.TIMEOUT, text, null);
              }
              waiting.sends(name);
              return connection;
            });
  }

  /** Sends a command, and returns its reply to the loop. */
  CompletableFuture<@Nullable Object> transmit(Connection connection, List<String> words) {
    CompletableFuture<@Nullable Object> answer = new CompletableFuture<>();
    CompletionStage<@Nullable Object> sent;
    try {
      sent = connection.send(words);
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(Failures.ofDriver(e));
    }
    sent.whenComplete(
        (reply, error) ->
            loop.execute(
                () -> {
                  if (error == null) {
                    answer.complete(reply);
                  } else {
                    answer.completeExceptionally(Failures.ofDriver(error));
                  }
                }));
    return answer;
  }

  private static UnavailableException away(String text) {
    return UnavailableException.unsent(Reason.CONNECTION, text, null);
  }

  /** Returns the error of a call that needs a dial while none may begin. */
  private @Nullable RuntimeException refused() {
    if (isClosed) {
      return away("the limiter is closed");
    }
    long left = dialAgainAt - loop.nanos();
    if (!isPausing || left <= 0) {
      return null;
    }
    if (refusal != null) {
      return refusal;
    }
    String text = "the server is dialled again in " + (left + 999_999) / 1_000_000 + " ms";
    return UnavailableException.quiet(Reason.CONNECTION, text);
  }

  /** Returns an open connection. All callers that wait share one dial. */
  CompletableFuture<Connection> open() {
    if (dial != null) {
      return dial.join();
    }
    Connection open = ready();
    if (open != null) {
      return CompletableFuture.completedFuture(open);
    }
    drop();
    RuntimeException refused = refused();
    if (refused != null) {
      return CompletableFuture.failedFuture(refused);
    }
    Shared<Connection> begun = new Shared<>();
    dial = begun;
    CompletableFuture<Connection> mine = begun.join();
    begin(begun);
    return mine;
  }

  private void begin(Shared<Connection> begun) {
    long beganAt = loop.nanos();
    Duration patience = terms.options.patience(!hasDialled);
    Runnable stop =
        loop.after(
            patience.toNanos(),
            () -> failed(begun, beganAt, away("no connection in " + patience.toMillis() + " ms")));
    dialled(patience)
        .whenComplete(
            (connection, error) ->
                loop.execute(() -> ended(begun, beganAt, stop, connection, error)));
  }

  private CompletionStage<? extends Connection> dialled(Duration patience) {
    try {
      return terms.connector.connect(name, patience);
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private void ended(
      Shared<Connection> begun,
      long beganAt,
      Runnable stop,
      @Nullable Connection connection,
      @Nullable Throwable error) {
    stop.run();
    if (connection == null) {
      failed(begun, beganAt, error == null ? away("no connection") : Failures.ofDriver(error));
      return;
    }
    if (dial != begun || isClosed) {
      close(connection);
      return;
    }
    dial = null;
    current = connection;
    isPausing = false;
    refusal = null;
    hasDialled = true;
    dialledAt = loop.nanos();
    dialTook = dialledAt - beganAt;
    begun.complete(connection);
  }

  private void failed(Shared<Connection> begun, long beganAt, Throwable error) {
    if (dial != begun) {
      return;
    }
    dial = null;
    RuntimeException known = Failures.ofDial(error);
    refusal = known instanceof CommandRejectedException rejected ? rejected : null;
    // Many processes lose the same server at once and should not all dial it at once.
    double pause = terms.options.breakerPause.toNanos() * terms.jitter.getAsDouble();
    isPausing = true;
    dialAgainAt = beganAt + (long) pause;
    begun.fail(known);
  }

  /** Drops the open connection. Returns false if none is open. */
  boolean retire() {
    boolean isUp = ready() != null;
    if (isUp) {
      drop();
    }
    return isUp;
  }

  private void drop() {
    Connection dropped = current;
    current = null;
    if (dropped != null) {
      close(dropped);
    }
  }

  private static void close(Connection connection) {
    try {
      connection.close();
    } catch (RuntimeException e) {
      System.getLogger("redisthrottle")
          .log(System.Logger.Level.WARNING, "redis-throttle: a connection did not close", e);
    }
  }

  void close() {
    isClosed = true;
    Shared<Connection> begun = dial;
    dial = null;
    if (begun != null) {
      begun.fail(away("the limiter is closed"));
    }
    drop();
  }
}
