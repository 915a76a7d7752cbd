package redisthrottle;

import static redisthrottle.Errors.recovered;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Routes calls to the primaries of a cluster, over one connection to each. */
final class Cluster implements Routes {
  private static final Pattern MOVED = Pattern.compile("^(MOVED|ASK) \\d+ (\\S+)$");

  /** The number of open connections on which the slot map is read at once. */
  private static final int READERS = 3;

  private final Link.Terms terms;
  private final Loop loop;
  private final List<String> seeds;
  private final Map<String, Node> nodes = new HashMap<>();

  /** The node of calls whose slot has no known one. It has no connections. */
  private final Node unrouted;

  /** The nodes that the cluster no longer has, whose commands may not all have replies. */
  private final Set<Node> leaving = new HashSet<>();

  private @Nullable SlotMap map;
  private @Nullable Shared<SlotMap> reading;
  private boolean hasRead;
  private long readAgainAt;
  private boolean isClosed;

  Cluster(Link.Terms terms, List<String> seeds) {
    this.terms = terms;
    this.loop = terms.loop();
    this.seeds = seeds;
    this.unrouted = new Node(terms, null, () -> {});
  }

  @Override
  public CompletableFuture<@Nullable Object> send(Words call, @Nullable Pending pending) {
    Node node = nodeOf(call);
    if (node != unrouted) {
      if (pending != null) {
        // A call that is sent again may have gone to another node before.
        pending.moveTo(node, false);
      }
      return sendTo(node, call, pending);
    }
    boolean isFirst = !hasRead;
    if (pending != null) {
      pending.awaitsMap(isFirst);
    }
    return read()
        .thenCompose(
            read -> {
              Node found = nodeOf(call);
              if (found == unrouted) {
                throw Link.unavailable("no node is known for the slot of this key");
              }
              if (pending != null) {
                pending.moveTo(found, isFirst);
              }
              return sendTo(found, call, pending);
            });
  }

  private CompletableFuture<@Nullable Object> sendTo(
      Node node, Words call, @Nullable Pending pending) {
    if (pending == null) {
      return Routes.sendFree(node, call.list());
    }
    return recovered(
        sendUnlessEnded(node, call.list(), false, pending),
        error -> failed(error, node, call, pending));
  }

  /** Sends a command, unless its caller has gone while it waited for its node. */
  private static CompletableFuture<@Nullable Object> sendUnlessEnded(
      Node node, List<String> words, boolean isAsking, Pending pending) {
    return pending.isEnded()
        ? CompletableFuture.failedFuture(Signal.cancelled())
        : node.send(words, isAsking, pending);
  }

  /** Follows a redirection once. After other errors of a node, reads the slot map again. */
  private CompletableFuture<@Nullable Object> failed(
      Throwable error, Node from, Words call, Pending pending) {
    Matcher moved = MOVED.matcher(Errors.text(error));
    boolean isMoved = moved.find();
    if (isMoved && moved.group(1).equals("MOVED")
        || Errors.beginsWith(error, "CLUSTERDOWN", "READONLY", "MASTERDOWN")) {
      refresh();
    }
    if (!isMoved) {
      return CompletableFuture.failedFuture(error);
    }
    // The server refused the call before it ran, so the call counts once when it is sent elsewhere.
    String address = SlotMap.named(moved.group(2), String.valueOf(from.name));
    Node to = node(terms.connector().translated(address));
    pending.moveTo(to, false);
    return sendUnlessEnded(to, call.list(), moved.group(1).equals("ASK"), pending);
  }

  private Node node(String name) {
    return nodes.computeIfAbsent(name, one -> new Node(terms, one, this::refresh));
  }

  @Override
  public Node nodeOf(Words call) {
    String name = map == null ? null : map.nodeOf(call.keys().get(0));
    return name == null ? unrouted : node(name);
  }

  @Override
  public Collection<Node> nodes() {
    List<Node> all = new ArrayList<>(nodes.values());
    all.add(unrouted);
    return all;
  }

  @Override
  public void dial() {
    read();
  }

  @Override
  public CompletableFuture<List<Node>> primaries() {
    CompletableFuture<SlotMap> known =
        map == null ? read() : CompletableFuture.completedFuture(map);
    return known.thenApply(read -> read.primaries().stream().map(this::node).toList());
  }

  @Override
  public void close() {
    isClosed = true;
    nodes().forEach(Node::close);
    leaving.forEach(Node::close);
  }

  /** Reads the slot map again, at most once per time-out. */
  private void refresh() {
    if (!hasRead || loop.nanos() - readAgainAt >= 0) {
      read();
    }
  }

  /** Reads the slot map. All callers that wait share one reading. */
  private CompletableFuture<SlotMap> read() {
    if (isClosed) {
      return CompletableFuture.failedFuture(Errors.closed());
    }
    if (reading != null) {
      return reading.join();
    }
    Shared<SlotMap> begun = new Shared<>();
    reading = begun;
    CompletableFuture<SlotMap> mine = begun.join();
    List<Node> open =
        nodes.values().stream().filter(node -> node.link.isOpen()).limit(READERS).toList();
    Errors.begun(
            () ->
                recovered(
                    firstOf(open, terms.options().silence().toNanos()), error -> readFromAll()))
        .whenComplete(
            (found, error) -> {
              reading = null;
              hasRead = true;
              readAgainAt = loop.nanos() + terms.options().timeout.toNanos();
              if (error == null) {
                install(found);
                begun.complete(found);
              } else {
                RuntimeException known = Errors.ofDial(error);
                if (known instanceof CommandRejectedException) {
                  unrouted.breaker.succeeded();
                } else {
                  unrouted.breaker.failed(loop.nanos());
                }
                begun.fail(known);
              }
            });
    return mine;
  }

  private CompletableFuture<SlotMap> readFromAll() {
    Set<String> all = new LinkedHashSet<>(seeds);
    all.addAll(nodes.keySet());
    List<Node> known = all.stream().map(this::node).toList();
    return firstOf(known, terms.options().patience(!hasRead).toNanos());
  }

  /** Returns the first slot map that one of the nodes returns. */
  private CompletableFuture<SlotMap> firstOf(List<Node> among, long patience) {
    CompletableFuture<SlotMap> first = new CompletableFuture<>();
    Runnable stop =
        loop.after(
            patience, () -> first.completeExceptionally(Link.unavailable("no slot map in time")));
    List<Throwable> errors = new ArrayList<>();
    for (Node node : among) {
      readFrom(node)
          .whenComplete(
              (found, error) -> {
                if (error == null) {
                  first.complete(found);
                  return;
                }
                errors.add(Errors.cause(error));
                if (errors.size() == among.size()) {
                  first.completeExceptionally(worst(errors));
                }
              });
    }
    if (among.isEmpty()) {
      first.completeExceptionally(Link.unavailable("no node of the cluster is known"));
    }
    return first.whenComplete((found, error) -> stop.run());
  }

  private static Throwable worst(List<Throwable> errors) {
    return errors.stream()
        .filter(CommandRejectedException.class::isInstance)
        .findFirst()
        .orElse(errors.get(0));
  }

  private CompletableFuture<SlotMap> readFrom(Node node) {
    return Routes.sendFree(node, List.of("CLUSTER", "SLOTS"))
        .handle(
            (reply, error) -> {
              if (error != null) {
                throw Errors.classified(error);
              }
              SlotMap read = SlotMap.of(reply, String.valueOf(node.name), terms.connector());
              if (read.primaries().isEmpty()) {
                // A node that was reset knows none. Its map would close all connections.
                throw Link.unavailable(node.name + " knows no slots");
              }
              return read;
            });
  }

  /** Stores the map, and ends the connections to nodes that are no longer a primary. */
  private void install(SlotMap found) {
    map = found;
    Set<String> primaries = found.primaries();
    List<Node> old =
        nodes.values().stream().filter(node -> !primaries.contains(node.name)).toList();
    nodes.keySet().retainAll(primaries);
    leaving.removeIf(node -> !node.link.isOpen());
    leaving.addAll(old);
    old.forEach(Node::leave);
  }
}
