package redisthrottle;

import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** Sends each call once, and follows it to its end. */
final class Exchange {
  final Loop loop;
  final Options options;
  final Backends backends;
  final long timeoutNs;
  private final Routes routes;
  private final Pending.Terms terms;

  /** The number of calls that have not ended, renewals and ends included. */
  private int open;

  private boolean isClosing;
  private @Nullable CompletableFuture<Boolean> idle;

  Exchange(Loop loop, Options options, Routes routes) {
    this.loop = loop;
    this.options = options;
    this.routes = routes;
    this.timeoutNs = options.timeout.toNanos();
    this.terms = new Pending.Terms(loop, timeoutNs, options.silence().toNanos(), this::ended);
    this.backends = new Backends(routes, loop, options);
  }

  /** Returns the number of nodes whose breaker is open. */
  int openBreakers() {
    return (int) routes.nodes().stream().filter(node -> node.breaker.isOpen()).count();
  }

  /** Returns the node of a call. */
  Node nodeOf(Words call) {
    return routes.nodeOf(call);
  }

  /** Sends a call. Fails with a rejection, an {@link UnavailableException}, or a cancellation. */
  CompletableFuture<@Nullable Object> send(Words call, Turn sender, Signal signal) {
    if (isClosing && signal != Signal.NONE) {
      return CompletableFuture.failedFuture(Errors.closed());
    }
    long left = signal.left(timeoutNs);
    if (left <= 0) {
      String text = "no time is left";
      return CompletableFuture.failedFuture(
          UnavailableException.unsent(Reason.OVERLOADED, text, null));
    }
    return begin(call, sender, signal, Pending.Kind.PLAIN, left);
  }

  /** Sends the call of {@code ready}. */
  CompletableFuture<@Nullable Object> sendReady(Words call, long withinNs, Signal signal) {
    return isClosing
        ? CompletableFuture.failedFuture(Errors.closed())
        : begin(call, Turn.NONE, signal, Pending.Kind.READY, withinNs);
  }

  private CompletableFuture<@Nullable Object> begin(
      Words call, Turn sender, Signal signal, Pending.Kind kind, long withinNs) {
    try {
      signal.throwIfAborted();
      Node node = routes.nodeOf(call);
      Pending pending = new Pending(terms, node, sender, signal, kind, withinNs);
      return run(call, pending, node, node.breaker.enter());
    } catch (RuntimeException | Error e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  /**
   * Sends a renewal, or the end of a lease or an admission. These have slots of their own, wait for
   * one until an instant, and pass an open circuit breaker if a connection is up.
   *
   * @param slotsOf returns the slots of the call at its node
   */
  CompletableFuture<@Nullable Object> sendHeld(
      Words call, Function<Node, Slots> slotsOf, long until, Signal signal) {
    Node node = routes.nodeOf(call);
    Slots slots = slotsOf.apply(node);
    open++;
    CompletableFuture<@Nullable Object> result =
        slots
            .take(until)
            .handle(
                (isTaken, error) -> {
                  if (error == null) {
                    return inSlot(call, node, slots, signal, isTaken);
                  }
                  // The cluster may have another node for the call.
                  return Errors.cause(error) instanceof NotSentException
                      ? sendHeld(call, slotsOf, until, signal)
                      : CompletableFuture.<@Nullable Object>failedFuture(error);
                })
            .thenCompose(Function.identity());
    result.whenComplete((reply, error) -> loop.execute(this::ended));
    return result;
  }

  /** Sends a call in the slot that it has waited for, and gives the slot back. */
  private CompletableFuture<@Nullable Object> inSlot(
      Words call, Node node, Slots slots, Signal signal, boolean isTaken) {
    if (!isTaken) {
      String text = "no slot was free before the lease ended";
      return CompletableFuture.failedFuture(
          UnavailableException.unsent(Reason.OVERLOADED, text, null));
    }
    return beginHeld(call, node, signal).whenComplete((reply, failure) -> slots.put());
  }

  private CompletableFuture<@Nullable Object> beginHeld(Words call, Node node, Signal signal) {
    try {
      signal.throwIfAborted();
      boolean passes = node.breaker.isOpen() && node.link.isOpen();
      Pending pending = new Pending(terms, node, Turn.NONE, signal, Pending.Kind.HELD, timeoutNs);
      return run(call, pending, node, !passes && node.breaker.enter());
    } catch (RuntimeException | Error e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private CompletableFuture<@Nullable Object> run(
      Words call, Pending pending, Node node, boolean isProbe) {
    open++;
    if (isProbe) {
      pending.probes();
    }
    // From here on the call holds a place or the probe, which only its end gives back.
    Errors.begun(
            () -> {
              if (isProbe) {
                node.beginProbe();
              }
              pending.follow();
              return backends.send(call, pending);
            })
        .whenComplete(
            (reply, error) -> {
              if (error == null) {
                pending.succeed(reply);
              } else {
                pending.fail(Errors.classified(error));
              }
            });
    return pending.result;
  }

  /** Called when a call has ended, after what follows its end. */
  private void ended() {
    open--;
    if (open == 0 && idle != null) {
      // As a task: what follows the end may send further calls as tasks.
      loop.execute(this::checkIdle);
    }
  }

  /** Ends the calls in line, and takes no further ones. Completes when all others have ended. */
  CompletableFuture<Boolean> finish() {
    isClosing = true;
    routes.nodes().forEach(node -> node.closeLine(Errors.closed()));
    CompletableFuture<Boolean> ended = new CompletableFuture<>();
    idle = ended;
    return ended;
  }

  /** Completes the result of {@link #finish} if no call is open. */
  void checkIdle() {
    if (open == 0 && idle != null) {
      idle.complete(true);
    }
  }

  void close() {
    routes.close();
  }
}
