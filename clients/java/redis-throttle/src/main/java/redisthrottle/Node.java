package redisthrottle;

import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The calls to one server, or to one primary of a cluster: their places, the line for a place or a
 * connection, and the silence that ends them.
 */
final class Node implements RunClock.Owner, Link.Owner, Pending.Place {
  private static final int RENEWALS = 8;
  private static final int ENDS = 32;

  /** Null for a single server. */
  final @Nullable String name;

  final Breaker breaker;

  /** Those of renewals are their own: ends that wait must not delay one until its ttl is over. */
  final Slots renewalSlots;

  final Slots endSlots;
  final RunClock clock;
  final Link link;
  private final Loop loop;
  private final Options options;
  private final long silenceNs;
  private final Runnable whenLost;

  /** The calls that wait, the oldest first. Those that have ended leave when they come first. */
  private final ArrayDeque<Pending> line = new ArrayDeque<>();

  /** The number of calls in line that have not ended. */
  private int waiting;

  /** The renewals and ends that wait for a connection. */
  private final ArrayDeque<Pending> ends = new ArrayDeque<>();

  /** The number of commands that were sent and have no reply. */
  private int inFlight;

  /** The instants by the clock until which patience is short. */
  private final Patience inLine;

  private final Patience forReply;

  /** The probe whose command is in flight. */
  private @Nullable Pending probe;

  /** True if {@link #probe} has ended without a reply. Its command stays until the next probe. */
  private boolean isSuspect;

  /** True once the cluster no longer has the node: no further probe follows. */
  private boolean hasLeft;

  /** A time after an end without a reply, in which calls wait less. */
  private final class Patience {
    private boolean isShort;
    private long until;

    void shorten() {
      isShort = true;
      until = loop.nanos() + options.breakerPause.toNanos();
    }

    boolean isShort() {
      isShort = isShort && loop.nanos() - until < 0;
      return isShort;
    }
  }

  /**
   * Makes a node without a connection.
   *
   * @param whenLost called when a connection to the node is lost or retires
   */
  Node(Link.Terms terms, @Nullable String name, Runnable whenLost) {
    this.name = name;
    this.loop = terms.loop();
    this.options = terms.options();
    this.whenLost = whenLost;
    this.silenceNs = options.silence().toNanos();
    this.breaker = new Breaker(loop, options.breakerFailures, options.breakerPause.toNanos());
    this.renewalSlots = new Slots(loop, RENEWALS);
    this.endSlots = new Slots(loop, ENDS);
    this.clock = new RunClock(loop, Math.max(1, silenceNs / 4), options.timeout.toNanos(), this);
    this.link = new Link(terms, name, clock, this);
    this.inLine = new Patience();
    this.forReply = new Patience();
  }

  @Override
  public RunClock clock() {
    return clock;
  }

  @Override
  public Breaker breaker() {
    return breaker;
  }

  @Override
  public boolean isOpen() {
    return link.isOpen();
  }

  @Override
  public boolean isFirst() {
    return link.isFirst();
  }

  @Override
  public long nextDialAt() {
    return link.nextDialAt();
  }

  /** Returns the deadline, in run time, of something that begins now. */
  long deadline(long timeoutNs) {
    return link.isFirst() ? RunClock.NEVER : clock.nanos() + timeoutNs;
  }

  /** Sends the command of a call once it has a place and a connection. */
  CompletableFuture<@Nullable Object> send(List<String> words, boolean isAsking, Pending call) {
    boolean hasPlace = !call.isCounted || call.hasPlace;
    if (link.isOpen() && (hasPlace || waiting == 0 && inFlight < options.maxInFlight)) {
      return transmit(words, isAsking, call);
    }
    return turn(call).thenCompose(isTurn -> transmit(words, isAsking, call));
  }

  private CompletableFuture<@Nullable Object> transmit(
      List<String> words, boolean isAsking, Pending call) {
    if (call.isCounted && !call.hasPlace) {
      inFlight++;
      call.hasPlace = true;
    }
    call.sent(forReply.isShort());
    if (call.isProbe()) {
      probe = call;
    }
    if (isAsking) {
      link.transmit(List.of("ASKING"));
    }
    return link.transmit(words, call.sentAt(), call.isPatient);
  }

  /** Makes a call stand in line. The result completes when it may be sent. */
  private CompletableFuture<Boolean> turn(Pending call) {
    boolean isUp = link.isOpen();
    RuntimeException refused = isUp ? null : link.refused();
    if (refused != null) {
      return CompletableFuture.failedFuture(refused);
    }
    CompletableFuture<Boolean> turn = new CompletableFuture<>();
    // A call that lacks only a connection has a place, and is not in line.
    int places = isUp ? 0 : options.maxInFlight - inFlight;
    if (waiting >= places && call.decideKnown()) {
      return turn;
    }
    if (!call.isCounted) {
      call.joins(turn, RunClock.NEVER);
      ends.add(call);
    } else if (call.hasPlace) {
      // The connection closed before it wrote the command: the call comes first again.
      leavePlace(call);
      call.joins(turn, RunClock.NEVER);
      waiting++;
      line.addFirst(call);
    } else if (waiting < options.maxWaiting + places) {
      call.joins(turn, inLine.isShort() ? silenceNs : RunClock.NEVER);
      waiting++;
      line.add(call);
    } else {
      String text = options.maxWaiting + " calls are in line";
      turn.completeExceptionally(UnavailableException.unsent(Reason.OVERLOADED, text, null));
    }
    if (!isUp) {
      call.awaitsDial(RunClock.NEVER);
      link.dial();
    }
    return turn;
  }

  @Override
  public void leftLine(Pending call) {
    if (!call.isCounted) {
      ends.remove(call);
      return;
    }
    waiting--;
    // From the middle it leaves later: a removal there would take time in proportion to the line.
    while (!line.isEmpty() && line.element().isEnded()) {
      line.remove();
    }
  }

  /** Gives back the place of a call whose command has its reply or was not sent. */
  void leavePlace(Pending call) {
    if (call.hasPlace) {
      call.hasPlace = false;
      inFlight--;
      serve(true);
    }
  }

  /**
   * Sends calls in line while there are places.
   *
   * @param isFreed true if a place was freed, and not a connection opened
   */
  private void serve(boolean isFreed) {
    while (waiting > 0 && inFlight < options.maxInFlight && link.isOpen()) {
      Pending next = line.remove();
      if (next.isEnded()) {
        continue;
      }
      if (!isFreed || !next.decideKnown()) {
        waiting--;
        next.serve();
      }
    }
  }

  /** Calls an act for each call in line. The act may end it. */
  private void eachInLine(Consumer<Pending> act) {
    List.copyOf(ends).forEach(act);
    for (Pending one : List.copyOf(line)) {
      if (one.isInLine()) {
        act.accept(one);
      }
    }
  }

  @Override
  public void opened(boolean isFirst) {
    if (isFirst) {
      clock.each(RunClock.Due::restart);
    }
    eachInLine(Pending::awaitsPlace);
    for (Pending one = ends.poll(); one != null; one = ends.poll()) {
      one.serve();
    }
    serve(false);
    clock.replan();
  }

  @Override
  public void dialFailed(RuntimeException error, boolean isFirst) {
    if (isFirst) {
      clock.each(RunClock.Due::restart);
    }
    if (error instanceof CommandRejectedException) {
      breaker.succeeded();
    } else {
      breaker.failed(link.nextDialAt());
    }
    eachInLine(one -> one.lose(error));
  }

  @Override
  public void lost(boolean hasReplied) {
    if (!hasReplied) {
      breaker.failed(link.nextDialAt());
    }
    dialForLine();
  }

  /** Dials if calls are in line after the connection was lost. */
  private void dialForLine() {
    long lostAt = clock.nanos();
    if (waiting + ends.size() > 0 && !link.isOpen()) {
      RuntimeException refused = link.refused();
      if (refused != null) {
        eachInLine(one -> one.lose(refused));
      } else {
        eachInLine(one -> one.awaitsDial(lostAt));
        link.dial();
        clock.replan();
      }
    }
    whenLost.run();
  }

  @Override
  public void retire(RuntimeException error) {
    link.retire(error);
    dialForLine();
  }

  @Override
  public long silentAt() {
    return isSuspect ? RunClock.NEVER : link.silentAt();
  }

  @Override
  public void whenRead(Runnable act) {
    link.whenRead(act);
  }

  @Override
  public void tick(long run) {
    if (silentAt() <= run) {
      silence();
    }
    clock.expire(run);
  }

  /** Ends the calls in flight. Those in line that have waited as long end too. */
  private void silence() {
    breaker.failed(link.nextDialAt());
    String text = "nothing arrived in " + silenceNs / 1_000_000 + " ms";
    UnavailableException silent = UnavailableException.sent(Reason.TIMEOUT, text, null);
    long run = clock.nanos();
    eachInLine(one -> one.endIfWaited(run - silenceNs, text));
    Pending probing = probe;
    if (probing != null && !probing.isEnded() && !hasLeft) {
      isSuspect = true;
      clock.each(
          due -> {
            if (due instanceof Pending call && call.isSent()) {
              call.lose(silent);
            }
          });
    } else {
      retire(silent);
    }
  }

  /** Drops the connection of a silent probe. The next probe uses another one. */
  void beginProbe() {
    if (isSuspect) {
      isSuspect = false;
      probe = null;
      String text = "the connection was dropped: it was silent";
      retire(UnavailableException.sent(Reason.CONNECTION, text, null));
    }
  }

  @Override
  public void settled(Pending call) {
    if (probe == call) {
      probe = null;
      isSuspect = false;
    }
    leavePlace(call);
  }

  @Override
  public boolean isSilentFor(Pending call) {
    return isSuspect || link.isSilentSince(call.sentAt());
  }

  @Override
  public void noteSilence() {
    if (!isSuspect) {
      silence();
    }
  }

  @Override
  public void overloaded(boolean wasSent) {
    (wasSent ? forReply : inLine).shorten();
  }

  /** Ends the calls in line with an error. */
  void closeLine(RuntimeException error) {
    eachInLine(
        one -> {
          if (one.isCounted) {
            one.lose(error);
          }
        });
  }

  void close() {
    // First, because an end in a slot would hand it over.
    closeSlots(Link.unavailable("the limiter is closed"));
    link.close();
    eachInLine(one -> one.lose(Link.unavailable("the limiter is closed")));
  }

  private void closeSlots(RuntimeException error) {
    renewalSlots.close(error);
    endSlots.close(error);
  }

  /**
   * Ends a node that the cluster no longer has. Calls in line go to another one; those that were
   * sent get their replies.
   */
  void leave() {
    hasLeft = true;
    closeSlots(new NotSentException(null));
    link.leave();
    eachInLine(Pending::turnBack);
    // A silent probe's connection would else stay until the next probe.
    beginProbe();
  }
}
