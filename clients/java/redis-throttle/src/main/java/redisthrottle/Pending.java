package redisthrottle;

import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A call, until it has its reply, its time is over or its caller gives up. A command that then has
 * no reply drains: it keeps its place until the reply arrives or the connection closes.
 */
final class Pending extends RunClock.Due {
  /** How a call is treated. */
  enum Kind {
    /** It stands in line for a place. */
    PLAIN,
    /** A renewal or an end, which has a slot of its own. */
    HELD,
    /** The call of {@code ready}, which waits for its whole time in each stage. */
    READY
  }

  /**
   * The terms of the calls of a limiter.
   *
   * @param ended called when a call has ended
   */
  record Terms(Loop loop, long timeoutNs, long silenceNs, Runnable ended) {}

  /** The node to which a call goes. */
  interface Place {
    RunClock clock();

    Breaker breaker();

    /** Returns true if a connection is open. */
    boolean isOpen();

    /** Returns true until the first dial has ended. */
    boolean isFirst();

    /** Returns the instant of the next dial by the clock, or now. */
    long nextDialAt();

    /** Called when a call ends in line. */
    void leftLine(Pending call);

    /** Called when the command of a call has its reply, or will get none. */
    void settled(Pending call);

    /** Closes the connection, and ends the calls on it. The next call dials. */
    void retire(RuntimeException error);

    /** Returns true if a sent call that is due now got no reply because the node is silent. */
    boolean isSilentFor(Pending call);

    /** Ends the calls in flight, unless the silence is known. */
    void noteSilence();

    /** Notes that a call ended in line, or before its reply, while the node was not silent. */
    void overloaded(boolean wasSent);
  }

  private enum Stage {
    /** Waits for the slot map of the cluster. */
    MAPPING,
    /** Waits for a search of the back end. */
    SEARCHING,
    IN_LINE,
    SENT
  }

  /**
   * The longest time of a call by the clock, in quarters of its time-out. It ends a quarter before
   * the third time-out, because its timer and its caller run late where the process hardly runs.
   */
  private static final long LATEST = 11;

  final CompletableFuture<@Nullable Object> result = new CompletableFuture<>();
  final boolean isCounted;
  final boolean isPatient;
  private final Terms terms;
  private final Turn sender;
  private final Signal signal;
  private final long timeoutNs;
  private Stage stage = Stage.SEARCHING;
  private boolean isEnded;
  private boolean isProbe;

  /** True while the call takes a place of its node, which sets it. */
  boolean hasPlace;

  private boolean hasReturned;

  /** True once the call has waited for something before it was sent. */
  private boolean hasWaited;

  /** The node that the call goes to: after a redirection another one. */
  private Place node;

  /** Instants in run time. */
  private long beganAt;

  private long joinedAt;
  private long sentAt;

  /** The longest time in line. */
  private long lineNs = RunClock.NEVER;

  private @Nullable CompletableFuture<Boolean> turn;
  private Runnable unfollow = () -> {};

  Pending(Terms terms, Place node, Turn sender, Signal signal, Kind kind, long timeoutNs) {
    this.terms = terms;
    this.node = node;
    this.sender = sender;
    this.signal = signal;
    this.isCounted = kind != Kind.HELD;
    this.isPatient = kind == Kind.READY;
    this.timeoutNs = timeoutNs;
    begin();
  }

  /** Begins the call's time. */
  private void begin() {
    beganAt = node.clock().nanos();
    joinedAt = beganAt;
    boolean isWaiting = node.isFirst() && !isPatient;
    endsAt = isWaiting ? RunClock.NEVER : beganAt + timeoutNs;
    endsAtLatest = isWaiting ? RunClock.NEVER : terms.loop.nanos() + LATEST * timeoutNs / 4;
  }

  /** Makes the call the probe of its node. */
  void probes() {
    isProbe = true;
    limit(endsAt);
  }

  /** Ends the call when its caller gives up. */
  void follow() {
    node.clock().add(this);
    unfollow = signal.whenAborted(() -> lose(Signal.cancelled()));
  }

  boolean isProbe() {
    return isProbe;
  }

  boolean isEnded() {
    return isEnded;
  }

  boolean isInLine() {
    return stage == Stage.IN_LINE && !isEnded;
  }

  boolean isSent() {
    return stage == Stage.SENT && !isEnded;
  }

  long sentAt() {
    return sentAt;
  }

  /**
   * Returns true once: for the first command that was not written because its connection closed.
   */
  boolean returns() {
    boolean isFirst = !hasReturned && !isEnded;
    hasReturned = true;
    return isFirst;
  }

  /** Returns the instant some time after another one. */
  private static long after(long at, long nanos) {
    return nanos == RunClock.NEVER ? nanos : at + nanos;
  }

  /** Sets the deadline, which for a probe is a silence after its begin. */
  private void limit(long at) {
    boolean isShort = isProbe && !isPatient;
    endsAt = isShort ? Math.min(at, beganAt + terms.silenceNs) : at;
  }

  /** Called when the call stands in line, for at most {@code patience} or half of the time-out. */
  void joins(CompletableFuture<Boolean> whenServed, long patience) {
    stage = Stage.IN_LINE;
    hasWaited = true;
    turn = whenServed;
    joinedAt = node.clock().nanos();
    long most = isCounted && !isPatient ? terms.timeoutNs / 2 : RunClock.NEVER;
    lineNs = Math.min(most, patience);
    awaitsPlace();
  }

  /** Sets the deadline of a call in line while a connection is open. */
  void awaitsPlace() {
    if (isPatient || !node.isFirst()) {
      limit(Math.min(beganAt + timeoutNs, after(joinedAt, lineNs)));
    }
  }

  /**
   * Sets the deadline of a call in line while no connection is open.
   *
   * @param lostAt the instant at which the connection was lost; the largest value if the call came
   *     later
   */
  void awaitsDial(long lostAt) {
    if (stage == Stage.IN_LINE && !node.isFirst() && !isPatient) {
      long from = lostAt == RunClock.NEVER ? joinedAt : Math.max(joinedAt, lostAt);
      limit(Math.min(beganAt + timeoutNs, from + terms.silenceNs));
    }
  }

  @Override
  void restart() {
    if (!isPatient) {
      begin();
    }
  }

  /** Lets the call in line be sent. */
  void serve() {
    CompletableFuture<Boolean> served = takeTurn();
    if (served != null) {
      served.complete(true);
    }
  }

  /** Takes the call out of the line of a node that the cluster no longer has. */
  void turnBack() {
    CompletableFuture<Boolean> served = takeTurn();
    if (served != null) {
      served.completeExceptionally(new NotSentException(null));
    }
  }

  private @Nullable CompletableFuture<Boolean> takeTurn() {
    CompletableFuture<Boolean> taken = turn;
    turn = null;
    stage = Stage.SEARCHING;
    return taken;
  }

  /** Called when the command is sent. */
  void sent(boolean isShort) {
    stage = Stage.SENT;
    sentAt = beganAt;
    if (hasWaited) {
      sentAt = node.clock().nanos();
    }
    boolean isLimited = isShort && isCounted && !isPatient;
    long most = isLimited ? terms.silenceNs : RunClock.NEVER;
    limit(Math.min(beganAt + timeoutNs, after(sentAt, most)));
  }

  /** Called when the call waits for a search: the server has replied that it did not run. */
  void searches() {
    stage = Stage.SEARCHING;
    hasWaited = true;
    if (isPatient || !node.isFirst()) {
      limit(beganAt + timeoutNs);
    }
  }

  /**
   * Called when the call waits for the slot map of a cluster.
   *
   * @param isFirst true if none was read yet: the wait does not count
   */
  void awaitsMap(boolean isFirst) {
    stage = Stage.MAPPING;
    hasWaited = true;
    if (isPatient) {
      return;
    }
    limit(isFirst ? RunClock.NEVER : beganAt + Math.min(timeoutNs, terms.silenceNs));
    endsAtLatest = isFirst ? RunClock.NEVER : endsAtLatest;
  }

  /** Moves the call to another node. The node that redirected it has replied. */
  void moveTo(Place to, boolean isRestarted) {
    if (isEnded || to == node) {
      return;
    }
    long spent = isRestarted ? 0 : node.clock().nanos() - beganAt;
    node.clock().delete(this);
    endProbe();
    node.settled(this);
    node = to;
    long latest = endsAtLatest;
    begin();
    if (endsAt != RunClock.NEVER) {
      beganAt -= spent;
      endsAt -= spent;
      endsAtLatest = isRestarted ? endsAtLatest : latest;
    }
    stage = Stage.SEARCHING;
    hasWaited = true;
    node.clock().add(this);
  }

  /** Decides the call by a known denial, if there is one. */
  boolean decideKnown() {
    if (isProbe) {
      return false;
    }
    Decision known = sender.known();
    if (known == null || !end()) {
      return false;
    }
    result.complete(known);
    terms.ended.run();
    return true;
  }

  /** Ends the call with the server's reply. */
  void succeed(@Nullable Object reply) {
    stage = Stage.SEARCHING;
    try {
      node.breaker().succeeded();
      if (end()) {
        result.complete(reply);
        terms.ended.run();
      } else if (sender.isDraining) {
        sender.late(reply, null);
      }
    } finally {
      node.settled(this);
    }
  }

  /** Ends the call with an error: that of the server, or of the connection. */
  void fail(RuntimeException error) {
    boolean isCommon = stage == Stage.MAPPING;
    stage = Stage.SEARCHING;
    try {
      if (error instanceof CommandRejectedException) {
        node.breaker().succeeded();
      } else if (!isEnded && !isCommon && reasonOf(error) == Reason.SERVER) {
        node.breaker().failed(node.nextDialAt());
      }
      if (retires(error)) {
        // First, because what follows the call must not go down the same connection.
        String text = "the connection was dropped: " + error.getMessage();
        node.retire(UnavailableException.sent(Reason.CONNECTION, text, null));
      }
      if (!lose(error) && sender.isDraining) {
        sender.late(null, error);
      }
    } finally {
      node.settled(this);
    }
  }

  private static @Nullable Reason reasonOf(RuntimeException error) {
    return error instanceof UnavailableException unavailable ? unavailable.reason() : null;
  }

  /** Returns true if the error shows that the connection leads to no server that decides. */
  private static boolean retires(RuntimeException error) {
    return error instanceof CommandRejectedException rejected
        ? rejected.kind().equals("NOAUTH") || rejected.kind().equals("WRONGPASS")
        : Errors.beginsWith(error, "READONLY", "MASTERDOWN");
  }

  /** Ends the call without a final reply. Returns false if it has ended. */
  boolean lose(RuntimeException error) {
    if (!end()) {
      return false;
    }
    result.completeExceptionally(error);
    terms.ended.run();
    return true;
  }

  /** Ends a call in line that has waited since an instant, because the node is silent. */
  void endIfWaited(long since, String text) {
    if (isInLine() && joinedAt <= since && !isPatient) {
      lose(UnavailableException.unsent(Reason.TIMEOUT, text, null));
    }
  }

  @Override
  void expire() {
    long ms = (node.clock().nanos() - beganAt) / 1_000_000;
    boolean isUp = node.isOpen();
    if (stage == Stage.SENT) {
      expireSent("no reply in " + ms + " ms");
    } else if (stage == Stage.MAPPING) {
      lose(UnavailableException.unsent(Reason.CONNECTION, "no slot map in " + ms + " ms", null));
    } else if (stage == Stage.IN_LINE && !isUp) {
      lose(
          UnavailableException.unsent(
              Reason.CONNECTION, "not connected and logged in within " + ms + " ms", null));
    } else {
      if (stage == Stage.IN_LINE && isCounted) {
        node.overloaded(false);
      }
      lose(UnavailableException.unsent(Reason.OVERLOADED, "no place in " + ms + " ms", null));
    }
  }

  private void expireSent(String text) {
    boolean isSilent = isProbe && !isPatient || node.isSilentFor(this);
    if (isSilent && !isPatient) {
      // First the node, whose breaker counts the failure of a probe from its begin.
      node.noteSilence();
      lose(UnavailableException.sent(Reason.TIMEOUT, text, null));
      return;
    }
    if (isCounted && !isPatient) {
      node.overloaded(true);
    }
    Reason reason = isSilent ? Reason.TIMEOUT : Reason.OVERLOADED;
    String far = isPatient ? "connected, logged in, no reply to RL.PEEK" : text;
    lose(UnavailableException.sent(reason, far, null));
    if (isSilent) {
      node.noteSilence();
    }
  }

  private boolean end() {
    if (isEnded) {
      return false;
    }
    isEnded = true;
    node.clock().delete(this);
    unfollow.run();
    if (isCounted) {
      signal.spend(node.clock().nanos() - beganAt);
    }
    endProbe();
    if (stage == Stage.IN_LINE) {
      node.leftLine(this);
    }
    sender.isDraining = stage == Stage.SENT;
    return true;
  }

  private void endProbe() {
    if (isProbe) {
      node.breaker().probeEnded();
      isProbe = false;
    }
  }
}
