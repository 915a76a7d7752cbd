package redisthrottle;

import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;
import redisthrottle.Breaker.Outcome;

/** A call in flight, until it is answered, its deadline passes or its caller gives up. */
final class Pending extends Deadlines.Due implements Waiting {
  final CompletableFuture<@Nullable Object> result = new CompletableFuture<>();
  private final Exchange exchange;
  private final long timeoutNs;
  private final long endsAt;
  private final boolean isCounted;
  private boolean isEnded;

  /** The node that the call goes to: after a redirection another one. */
  private Node node;

  /** The number of the call among those of its node. */
  private long number;

  private boolean isProbe;
  private boolean isSent = true;
  private long sentAt;

  /** The number of answers from the node when the call was sent. */
  private long answered;

  private Runnable unwatch = () -> {};
  private Runnable unfollow = () -> {};

  Pending(Exchange exchange, Node node, long timeoutNs, boolean isProbe, boolean isCounted) {
    this.exchange = exchange;
    this.timeoutNs = timeoutNs;
    this.node = node;
    node.entered++;
    this.number = node.entered;
    this.isProbe = isProbe;
    this.isCounted = isCounted;
    this.sentAt = exchange.loop.nanos();
    this.answered = node.answers;
    this.endsAt = sentAt + timeoutNs;
  }

  /** Ends the call when its caller gives up. */
  void follow(Signal signal) {
    unfollow =
        signal.whenAborted(
            () -> {
              if (isSent) {
                unwatch = exchange.watch(node, sentAt, answered);
              }
              lose(new CancellationException("the call was cancelled"), Outcome.NEITHER);
            });
  }

  boolean isOf(Node other) {
    return node == other;
  }

  @Override
  public boolean isEnded() {
    return isEnded;
  }

  @Override
  public long endsAt() {
    return endsAt;
  }

  @Override
  public void waits(@Nullable String name) {
    isSent = false;
    goesTo(name == null ? node.name : name);
  }

  @Override
  public void sends(@Nullable String name) {
    goesTo(name);
    if (!isEnded) {
      isSent = true;
      sentAt = exchange.loop.nanos();
      answered = node.answers;
    }
  }

  /** Counts the call for another node. The node that redirected it has answered. */
  private void goesTo(@Nullable String name) {
    Node to = exchange.nodeNamed(name);
    if (isEnded || to == node) {
      return;
    }
    leave(Outcome.ANSWERED);
    isProbe = false;
    node.answers++;
    node = to;
    to.entered++;
    number = to.entered;
    if (isCounted) {
      to.inFlight++;
    }
  }

  /** Ends the call with the driver's answer. */
  void answer(@Nullable Object reply) {
    node.answers++;
    unwatch.run();
    if (end(Outcome.ANSWERED)) {
      result.complete(reply);
    }
  }

  /** Ends the call with the driver's error. */
  void fail(RuntimeException error) {
    if (Failures.isAnswer(error)) {
      node.answers++;
    }
    unwatch.run();
    lose(error, null);
  }

  /**
   * Ends the call, which the driver may not have ended yet.
   *
   * @param given the outcome; null for that of the error
   */
  void lose(RuntimeException error, @Nullable Outcome given) {
    if (end(given == null ? outcome(error) : given)) {
      // First, because what follows the call must not go down the same connection.
      retire(error);
      result.completeExceptionally(error);
    }
  }

  @Override
  void expire() {
    String text = "no answer in " + timeoutNs / 1_000_000 + " ms";
    UnavailableException error =
        isSent
            ? UnavailableException.sent(Reason.TIMEOUT, text, null)
            : UnavailableException.unsent(Reason.TIMEOUT, text, null);
    lose(error, null);
  }

  /** Retires the generation, unless the call timed out before it was sent. */
  private void retire(RuntimeException error) {
    boolean isUnsent = error instanceof UnavailableException && !isSent;
    if (retires(error) && !isUnsent) {
      exchange.retire(node, null);
    }
  }

  /** Returns true if the error shows that the connection leads to no server that decides. */
  private static boolean retires(RuntimeException error) {
    if (error instanceof CommandRejectedException rejected) {
      return rejected.kind().equals("NOAUTH") || rejected.kind().equals("WRONGPASS");
    }
    if (error instanceof UnavailableException away) {
      return away.reason() == Reason.TIMEOUT
          || Failures.beginsWith(error, "READONLY", "MASTERDOWN");
    }
    return false;
  }

  /** Returns the outcome. Calls that fail together are one failure. A rejection is an answer. */
  private Outcome outcome(RuntimeException error) {
    if (error instanceof CommandRejectedException) {
      return Outcome.ANSWERED;
    }
    if (!(error instanceof UnavailableException away) || away.isQuiet()) {
      return Outcome.NEITHER;
    }
    boolean isLoss = away.reason() == Reason.CONNECTION || away.reason() == Reason.TIMEOUT;
    return isLoss && number <= node.failedThrough ? Outcome.NEITHER : Outcome.FAILED;
  }

  private boolean end(Outcome outcome) {
    if (isEnded) {
      return false;
    }
    isEnded = true;
    exchange.deadlines.delete(this);
    unfollow.run();
    if (outcome == Outcome.FAILED) {
      node.failedThrough = node.entered;
    }
    leave(outcome);
    return true;
  }

  /** Frees the slot of the call at its node. */
  private void leave(Outcome outcome) {
    if (isCounted) {
      node.inFlight--;
    }
    node.breaker.ended(outcome, isProbe);
  }
}
