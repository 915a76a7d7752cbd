package redisthrottle;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.DoubleSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The connection to one node: one at a time, which is a generation. A generation that retires is
 * closed, and the next call dials another.
 */
final class Link {
  /** The terms on which connections are opened. */
  record Terms(Loop loop, Connector connector, Options options, DoubleSupplier jitter) {}

  /** The node whose connection it is. */
  interface Owner {
    /**
     * Called when a connection has opened.
     *
     * @param isFirst true for the first dial to the node
     */
    void opened(boolean isFirst);

    /** Called once for each dial that failed. */
    void dialFailed(RuntimeException error, boolean isFirst);

    /**
     * Called when the connection was lost.
     *
     * @param hasReplied true if it had replied to a command
     */
    void lost(boolean hasReplied);
  }

  /** A connection, and the commands on it. */
  private static final class Generation {
    final Connection connection;
    final ArrayDeque<Sent> inFlight = new ArrayDeque<>();
    boolean hasReplied;

    Generation(Connection connection) {
      this.connection = connection;
    }
  }

  /** A command that was sent, and its reply. */
  private final class Sent extends CompletableFuture<@Nullable Object> {
    final Generation on;
    final long at;

    /** True for the command of {@code ready}, whose silence ends nothing. */
    final boolean isPatient;

    Sent(Generation on, long at, boolean isPatient) {
      this.on = on;
      this.at = at;
      this.isPatient = isPatient;
    }

    void ended(@Nullable Object reply, @Nullable Throwable error) {
      if (isDone()) {
        return;
      }
      if (on.inFlight.peek() == this) {
        on.inFlight.poll();
      } else {
        on.inFlight.remove(this);
      }
      RuntimeException known = error == null ? null : Errors.ofDriver(error);
      if (known == null || known instanceof ServerErrorException) {
        heardAt = clock.nanos();
        on.hasReplied = true;
      } else {
        lose(on, known instanceof NotSentException);
      }
      if (known == null) {
        complete(reply);
      } else {
        completeExceptionally(known);
      }
      if (closedBy != null && on.inFlight.isEmpty()) {
        retire(closedBy.get());
      }
    }
  }

  private final Terms terms;
  private final Loop loop;
  private final @Nullable String name;
  private final RunClock clock;
  private final Owner owner;
  private final long silenceNs;
  private @Nullable Generation current;
  private @Nullable Dial dial;

  /** The instant in run time at which the last reply was read. */
  private long heardAt;

  /** True if {@code dialAgainAt} holds. */
  private boolean isPausing;

  private long dialAgainAt;
  private @Nullable CommandRejectedException refusal;
  private boolean hasDialled;

  /** Returns the error of calls after the end; null before it. */
  private @Nullable Supplier<RuntimeException> closedBy;

  Link(Terms terms, @Nullable String name, RunClock clock, Owner owner) {
    this.terms = terms;
    this.loop = terms.loop;
    this.name = name;
    this.clock = clock;
    this.owner = owner;
    this.silenceNs = terms.options.silence().toNanos();
  }

  /** Returns true if a connection is open. */
  boolean isOpen() {
    return current != null && current.connection.isOpen();
  }

  /** Returns true until the first dial has ended. */
  boolean isFirst() {
    return !hasDialled;
  }

  /** Sends a command of no call on the open connection. */
  CompletableFuture<@Nullable Object> transmit(List<String> words) {
    return transmit(words, clock.nanos(), false);
  }

  /**
   * Sends a command on the open connection, and returns its reply to the loop.
   *
   * @param at the instant in run time
   */
  CompletableFuture<@Nullable Object> transmit(List<String> words, long at, boolean isPatient) {
    Generation on = current;
    if (on == null) {
      return CompletableFuture.failedFuture(new NotSentException(null));
    }
    Sent sent = new Sent(on, at, isPatient);
    on.inFlight.add(sent);
    clock.start();
    // What the driver throws, also an error such as the end of the memory, must end the command:
    // one that never gets a reply looks like a silent node.
    Errors.begun(() -> on.connection.send(words))
        .whenComplete((value, error) -> loop.execute(() -> sent.ended(value, error)));
    return sent;
  }

  /** Returns the instant in run time at which the node is silent. */
  long silentAt() {
    Generation on = current;
    if (on == null) {
      return RunClock.NEVER;
    }
    for (Sent sent : on.inFlight) {
      if (!sent.isPatient) {
        return Math.max(heardAt, sent.at) + silenceNs;
      }
    }
    return RunClock.NEVER;
  }

  /** Returns true if nothing was heard since an instant in run time, for as long as a silence. */
  boolean isSilentSince(long at) {
    return clock.nanos() - Math.max(heardAt, at) >= silenceNs;
  }

  /** Runs an act once what has arrived on the connection was read. */
  void whenRead(Runnable act) {
    Generation on = current;
    if (on == null) {
      act.run();
      return;
    }
    try {
      on.connection.whenRead(act);
    } catch (RuntimeException | Error e) {
      act.run();
    }
  }

  static UnavailableException unavailable(String text) {
    return UnavailableException.unsent(Reason.CONNECTION, text, null);
  }

  /** Returns the error of a call that needs a dial while none may begin; null if one may. */
  @Nullable RuntimeException refused() {
    if (closedBy != null) {
      return closedBy.get();
    }
    long left = dialAgainAt - loop.nanos();
    if (dial != null || !isPausing || left <= 0) {
      return null;
    }
    if (refusal != null) {
      return refusal;
    }
    return unavailable("the server is dialled again in " + (left + 999_999) / 1_000_000 + " ms");
  }

  /** Returns the instant of the next dial by the clock, or now. */
  long nextDialAt() {
    long now = loop.nanos();
    return isPausing && dialAgainAt - now > 0 ? dialAgainAt : now;
  }

  /** Completes when a connection is open. All callers that wait share one dial. */
  CompletableFuture<Boolean> opened() {
    if (dial == null && isOpen()) {
      return CompletableFuture.completedFuture(true);
    }
    RuntimeException refused = refused();
    if (refused != null) {
      return CompletableFuture.failedFuture(refused);
    }
    return dial().join();
  }

  /** Begins a dial, unless one is under way. */
  Shared<Boolean> dial() {
    Dial under = dial;
    if (under != null) {
      return under.result;
    }
    drop();
    Duration patience = terms.options.patience(!hasDialled);
    Dial begun = new Dial(patience);
    dial = begun;
    begun.endsAt = clock.nanos() + patience.toNanos();
    clock.add(begun);
    begun.begin();
    return begun.result;
  }

  /** A dial, which all callers that wait share. */
  private final class Dial extends RunClock.Due {
    final Shared<Boolean> result = new Shared<>();
    final Duration patience;

    Dial(Duration patience) {
      this.patience = patience;
    }

    void begin() {
      Errors.begun(() -> terms.connector.connect(name, patience))
          .whenComplete((opened, error) -> loop.execute(() -> ended(opened, error)));
    }

    @Override
    void expire() {
      failed(unavailable("not connected and logged in within " + patience.toMillis() + " ms"));
    }

    private void ended(@Nullable Connection connection, @Nullable Throwable error) {
      if (connection == null) {
        failed(error == null ? unavailable("no connection") : Errors.ofDriver(error));
        return;
      }
      if (dial != this) {
        close(connection);
        return;
      }
      current = new Generation(connection);
      isPausing = false;
      refusal = null;
      heardAt = clock.nanos();
      boolean isFirst = end();
      try {
        owner.opened(isFirst);
      } finally {
        result.complete(true);
      }
    }

    private void failed(Throwable error) {
      if (dial != this) {
        return;
      }
      boolean isFirst = end();
      RuntimeException known = Errors.ofDial(error);
      refusal = known instanceof CommandRejectedException rejected ? rejected : null;
      // Many processes lose the same server at once and should not all dial it at once.
      double pause = terms.options.dialPause().toNanos() * terms.jitter.getAsDouble();
      isPausing = true;
      dialAgainAt = loop.nanos() + (long) pause;
      try {
        owner.dialFailed(known, isFirst);
      } finally {
        result.fail(known);
      }
    }

    /** Returns true if this was the first dial. */
    private boolean end() {
      boolean isFirst = !hasDialled;
      hasDialled = true;
      dial = null;
      clock.delete(this);
      return isFirst;
    }
  }

  /** Notes that a connection is lost. The driver ends the commands on it. */
  private void lose(Generation on, boolean wasIdle) {
    if (current != on) {
      return;
    }
    drop();
    owner.lost(on.hasReplied || wasIdle);
  }

  /** Closes the open connection, and ends the commands on it with an error. */
  void retire(RuntimeException error) {
    Generation on = current;
    if (on == null) {
      return;
    }
    drop();
    for (Sent sent = on.inFlight.poll(); sent != null; sent = on.inFlight.poll()) {
      sent.completeExceptionally(error);
    }
  }

  private void drop() {
    Generation dropped = current;
    current = null;
    if (dropped != null) {
      close(dropped.connection);
    }
  }

  private void close(Connection connection) {
    try {
      connection.close();
    } catch (RuntimeException | Error e) {
      loop.reports.send(
          () ->
              System.getLogger("redisthrottle")
                  .log(
                      System.Logger.Level.WARNING,
                      "redis-throttle: a connection did not close",
                      e));
    }
  }

  /** Closes the connection with the limiter, and ends the commands on it. */
  void close() {
    refuse(Errors::closed, "the limiter is closed");
    retire(UnavailableException.sent(Reason.CONNECTION, "the limiter is closed", null));
  }

  /**
   * Closes the connection to a node that has left the cluster once its commands have their replies.
   */
  void leave() {
    String text = "the node has left the cluster";
    refuse(() -> unavailable(text), text);
    Generation on = current;
    if (on != null && on.inFlight.isEmpty()) {
      retire(unavailable(text));
    }
  }

  private void refuse(Supplier<RuntimeException> error, String text) {
    closedBy = error;
    Dial begun = dial;
    if (begun != null) {
      begun.end();
      begun.result.fail(unavailable(text));
    }
  }
}
