package redisthrottle;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;
import redisthrottle.Breaker.Outcome;

/** Sends each call once, within its deadline, and limits the calls in flight. */
final class Exchange {
  final Loop loop;
  final Options options;
  final Backends backends;
  final Deadlines deadlines;
  private final Routes routes;
  private final long timeoutNs;

  /** The nodes by name. */
  private final Map<@Nullable String, Node> nodes = new HashMap<>();

  Exchange(Loop loop, Options options, Routes routes) {
    this.loop = loop;
    this.options = options;
    this.routes = routes;
    this.deadlines = new Deadlines(loop);
    this.timeoutNs = options.timeout.toNanos();
    this.backends = new Backends(routes, this);
  }

  /** Returns the number of nodes whose breaker is open. */
  int openBreakers() {
    return (int) nodes.values().stream().filter(node -> node.breaker.isOpen()).count();
  }

  /** Returns the state of a node, so that a dead node does not block the others. */
  Node nodeNamed(@Nullable String name) {
    Node node = nodes.get(name);
    if (node == null) {
      long pause = options.breakerPause.toNanos();
      node = new Node(name, loop, new Breaker(loop, options.breakerFailures, pause));
      nodes.put(name, node);
    }
    return node;
  }

  /** Sends a call. Fails with a rejection, an {@link UnavailableException}, or a cancellation. */
  CompletableFuture<@Nullable Object> send(Call call, Signal signal) {
    return send(call, timeoutNs, signal);
  }

  /** Sends a call with a deadline of its own. */
  CompletableFuture<@Nullable Object> send(Call call, long withinNs, Signal signal) {
    try {
      signal.throwIfAborted();
      Node node = nodeNamed(routes.nodeOf(call));
      if (node.inFlight >= options.maxInFlight && !node.breaker.isOpen()) {
        String text = options.maxInFlight + " calls are in flight";
        throw UnavailableException.quiet(Reason.OVERLOADED, text);
      }
      boolean isProbe = node.breaker.enter();
      node.inFlight++;
      return run(call, new Pending(this, node, withinNs, isProbe, true), signal);
    } catch (UnavailableException | CancellationException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  /**
   * Sends a renewal, or the end of a lease or an admission. These have slots of their own, wait for
   * one until an instant, and pass an open circuit breaker if a connection is up.
   */
  CompletableFuture<@Nullable Object> sendHeld(Call call, long until, Signal signal) {
    Node node = nodeNamed(routes.nodeOf(call));
    return node.takeSlot(until)
        .thenCompose(
            isTaken -> {
              if (!isTaken) {
                String text = "no slot was free before the lease ended";
                throw UnavailableException.quiet(Reason.OVERLOADED, text);
              }
              return inSlot(call, node, signal).whenComplete((reply, error) -> node.putSlot());
            });
  }

  private CompletableFuture<@Nullable Object> inSlot(Call call, Node node, Signal signal) {
    try {
      signal.throwIfAborted();
      boolean passes = node.breaker.isOpen() && routes.isUp(node.name);
      boolean isProbe = !passes && node.breaker.enter();
      return run(call, new Pending(this, node, timeoutNs, isProbe, false), signal);
    } catch (UnavailableException | CancellationException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private CompletableFuture<@Nullable Object> run(Call call, Pending pending, Signal signal) {
    pending.follow(signal);
    deadlines.add(pending);
    backends
        .send(call, pending)
        .whenComplete(
            (reply, error) -> {
              if (error == null) {
                pending.answer(reply);
              } else {
                pending.fail(Failures.classified(error));
              }
            });
    return pending.result;
  }

  /** Drops the connection to a node, and ends the calls on it. The next call dials. */
  void retire(Node node, @Nullable Outcome outcome) {
    if (!routes.retire(node.name)) {
      return;
    }
    String text = "the connection was dropped: it was silent";
    UnavailableException lost = UnavailableException.sent(Reason.CONNECTION, text, null);
    long now = loop.nanos();
    deadlines.each(
        due -> {
          if (due instanceof Pending pending && pending.isOf(node)) {
            if (pending.endsAt() - now <= 0) {
              pending.expire();
            } else {
              pending.lose(lost, outcome);
            }
          }
        });
  }

  /**
   * Watches a command whose caller gave up. If nothing arrives from its node until the time-out
   * after it was sent, the connection is silent, and retires. That is no failure: the caller had
   * given up.
   *
   * @param answered the number of answers from the node when the command was sent
   * @return ends the watch
   */
  Runnable watch(Node node, long sentAt, long answered) {
    return loop.after(
        sentAt + timeoutNs - loop.nanos(),
        () -> {
          if (node.answers == answered) {
            retire(node, Outcome.NEITHER);
          }
        });
  }

  void close() {
    routes.close();
  }
}
