package redisthrottle;

import static redisthrottle.Failures.recovered;

import java.util.ArrayList;
import java.util.HashMap;
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

  /** The number of open connections on which the slot map is asked for at once. */
  private static final int READERS = 3;

  private final Line.Terms terms;
  private final Loop loop;
  private final List<String> seeds;
  private final Map<String, Line> lines = new HashMap<>();
  private @Nullable SlotMap map;
  private @Nullable Shared<SlotMap> reading;
  private boolean hasRead;
  private long readAgainAt;
  private boolean isClosed;

  Cluster(Line.Terms terms, List<String> seeds) {
    this.terms = terms;
    this.loop = terms.loop();
    this.seeds = seeds;
  }

  @Override
  public CompletableFuture<@Nullable Object> send(Call call, Waiting waiting) {
    long since = loop.nanos();
    String node = nodeOf(call);
    if (node != null) {
      CompletableFuture<@Nullable Object> sent = line(node).send(call.words(), waiting, since);
      return recovered(sent, error -> failed(error, node, call, waiting));
    }
    waiting.waits(null);
    return read()
        .thenCompose(
            read -> {
              String found = nodeOf(call);
              if (found == null) {
                throw away("no node is known for the slot of this key");
              }
              CompletableFuture<@Nullable Object> sent =
                  line(found).send(call.words(), redialled(waiting, found), since);
              return recovered(sent, error -> failed(error, found, call, waiting));
            });
  }

  /** Tells a call, which has waited for the slot map, the node that it goes to. */
  private static Waiting redialled(Waiting waiting, String node) {
    waiting.sends(node);
    return waiting;
  }

  private static UnavailableException away(String text) {
    return UnavailableException.unsent(Reason.CONNECTION, text, null);
  }

  /** Follows a redirection once. After other errors of a node, reads the slot map again. */
  private CompletableFuture<@Nullable Object> failed(
      Throwable error, String from, Call call, Waiting waiting) {
    Matcher moved = MOVED.matcher(Failures.text(error));
    boolean isMoved = moved.find();
    boolean isLost =
        Failures.classified(error) instanceof UnavailableException away
            && away.reason() == Reason.CONNECTION;
    boolean isStale = Failures.beginsWith(error, "CLUSTERDOWN", "READONLY", "MASTERDOWN");
    if (isMoved && moved.group(1).equals("MOVED") || isLost || isStale) {
      refresh();
    }
    if (!isMoved || waiting.isEnded()) {
      return CompletableFuture.failedFuture(error);
    }
    // The server refused the call before it ran, so the call counts once when it is sent elsewhere.
    Line to = line(terms.connector().translated(SlotMap.named(moved.group(2), from)));
    boolean isAsk = moved.group(1).equals("ASK");
    return to.openFor(waiting, loop.nanos())
        .thenCompose(
            connection -> {
              if (isAsk) {
                to.transmit(connection, List.of("ASKING"));
              }
              return to.transmit(connection, call.words());
            });
  }

  private Line line(String node) {
    return lines.computeIfAbsent(node, name -> new Line(terms, name));
  }

  @Override
  public @Nullable String nodeOf(Call call) {
    return map == null ? null : map.nodeOf(call.keys().get(0));
  }

  @Override
  public CompletableFuture<List<Routes>> primaries() {
    CompletableFuture<SlotMap> known =
        map == null ? read() : CompletableFuture.completedFuture(map);
    return known.thenApply(
        read -> {
          List<Routes> all = new ArrayList<>();
          read.primaries().forEach(node -> all.add(new Primary(node)));
          return all;
        });
  }

  /** The route to one primary. */
  private final class Primary implements Routes {
    private final String node;

    Primary(String node) {
      this.node = node;
    }

    @Override
    public CompletableFuture<@Nullable Object> send(Call call, Waiting waiting) {
      waiting.sends(node);
      return line(node).send(call.words(), waiting, loop.nanos());
    }

    @Override
    public @Nullable String nodeOf(Call call) {
      return node;
    }

    @Override
    public boolean retire(@Nullable String name) {
      return Cluster.this.retire(name);
    }

    @Override
    public boolean isUp(@Nullable String name) {
      return Cluster.this.isUp(name);
    }

    @Override
    public CompletableFuture<List<Routes>> primaries() {
      return CompletableFuture.completedFuture(List.of(this));
    }

    @Override
    public void close() {}
  }

  @Override
  public boolean retire(@Nullable String node) {
    Line line = node == null ? null : lines.get(node);
    if (line == null || !line.retire()) {
      return false;
    }
    refresh();
    return true;
  }

  @Override
  public boolean isUp(@Nullable String node) {
    Line line = node == null ? null : lines.get(node);
    return line != null && line.ready() != null;
  }

  @Override
  public void close() {
    isClosed = true;
    List.copyOf(lines.values()).forEach(Line::close);
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
      return CompletableFuture.failedFuture(away("the limiter is closed"));
    }
    if (reading != null) {
      return reading.join();
    }
    Shared<SlotMap> begun = new Shared<>();
    reading = begun;
    CompletableFuture<SlotMap> mine = begun.join();
    List<String> open = lines.keySet().stream().filter(this::isUp).limit(READERS).toList();
    recovered(firstOf(open, terms.options().timeout.toNanos()), error -> readFromAll())
        .whenComplete(
            (found, error) -> {
              reading = null;
              hasRead = true;
              readAgainAt = loop.nanos() + terms.options().timeout.toNanos();
              if (error == null) {
                install(found);
                begun.complete(found);
              } else {
                begun.fail(Failures.ofDial(error));
              }
            });
    return mine;
  }

  private CompletableFuture<SlotMap> readFromAll() {
    Set<String> all = new LinkedHashSet<>(seeds);
    all.addAll(lines.keySet());
    return firstOf(List.copyOf(all), terms.options().patience(map == null).toNanos());
  }

  /** Returns the first slot map that one of the nodes answers with. */
  private CompletableFuture<SlotMap> firstOf(List<String> nodes, long patience) {
    CompletableFuture<SlotMap> first = new CompletableFuture<>();
    Runnable stop =
        loop.after(patience, () -> first.completeExceptionally(away("no slot map in time")));
    List<Throwable> errors = new ArrayList<>();
    for (String node : nodes) {
      readFrom(node)
          .whenComplete(
              (found, error) -> {
                if (error == null) {
                  first.complete(found);
                  return;
                }
                errors.add(Failures.cause(error));
                if (errors.size() == nodes.size()) {
                  first.completeExceptionally(worst(errors));
                }
              });
    }
    if (nodes.isEmpty()) {
      first.completeExceptionally(away("no node of the cluster is known"));
    }
    return first.whenComplete((found, error) -> stop.run());
  }

  private static Throwable worst(List<Throwable> errors) {
    return errors.stream()
        .filter(CommandRejectedException.class::isInstance)
        .findFirst()
        .orElse(errors.get(0));
  }

  private CompletableFuture<SlotMap> readFrom(String node) {
    Line line = line(node);
    return line.open()
        .thenCompose(connection -> line.transmit(connection, List.of("CLUSTER", "SLOTS")))
        .handle(
            (reply, error) -> {
              if (error != null) {
                throw Failures.classified(error);
              }
              return SlotMap.of(reply, node, terms.connector());
            });
  }

  /** Stores the map, and closes the connections to nodes that are no longer a primary. */
  private void install(SlotMap found) {
    map = found;
    Set<String> primaries = found.primaries();
    lines
        .entrySet()
        .removeIf(
            entry -> {
              boolean isOld = !primaries.contains(entry.getKey());
              if (isOld) {
                entry.getValue().close();
              }
              return isOld;
            });
  }
}
