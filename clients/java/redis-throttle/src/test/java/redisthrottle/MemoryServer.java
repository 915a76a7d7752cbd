package redisthrottle;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/** A server, or the nodes of a cluster, in memory: a function replies to each command. */
final class MemoryServer implements Connector {
  /** Replies to a command. The node is "server" without a cluster. */
  interface Handler {
    CompletionStage<Object> handle(String node, List<String> words);
  }

  static final List<Object> ALLOWED = List.of(1L, 10L, 9L, 0L, 6000L);

  final List<String> seeds;

  /** The commands that arrived, after the name of their node. */
  final Queue<String> sent = new ConcurrentLinkedQueue<>();

  /** The names of the nodes that were dialled. */
  final Queue<String> dials = new ConcurrentLinkedQueue<>();

  /** Dials that have not ended, by node. */
  final Map<String, CompletableFuture<Void>> dialling = new ConcurrentHashMap<>();

  final Map<String, One> open = new ConcurrentHashMap<>();
  volatile Handler handler;

  /** Called when a connection, or the connector, closes. */
  volatile Runnable onClose = () -> {};

  MemoryServer(List<String> seeds, Handler handler) {
    this.seeds = seeds;
    this.handler = handler;
  }

  static CompletionStage<Object> reply(Object value) {
    return CompletableFuture.completedFuture(value);
  }

  static CompletionStage<Object> error(String text) {
    return CompletableFuture.failedFuture(new ServerErrorException(text, null));
  }

  static CompletionStage<Object> notSent() {
    return CompletableFuture.failedFuture(new NotSentException(null));
  }

  /** Returns a range of a reply of {@code CLUSTER SLOTS}. */
  static List<Object> range(long first, long last, String host) {
    return List.of(first, last, List.of(host, 1L));
  }

  @Override
  public List<String> seeds() {
    return seeds;
  }

  @Override
  public CompletionStage<Connection> connect(String node, Duration timeout) {
    String name = node == null ? "server" : node;
    dials.add(name);
    return dialling
        .getOrDefault(name, CompletableFuture.completedFuture(null))
        .thenApply(
            done -> {
              One one = new One(name);
              open.put(name, one);
              return one;
            });
  }

  /** A connection. */
  final class One implements Connection {
    private final String name;
    private final Queue<CompletableFuture<Object>> pending = new ConcurrentLinkedQueue<>();
    volatile boolean isClosed;

    One(String name) {
      this.name = name;
    }

    @Override
    public CompletionStage<Object> send(List<String> words) {
      sent.add(name + " " + String.join(" ", words));
      CompletableFuture<Object> reply = handler.handle(name, words).toCompletableFuture();
      pending.add(reply);
      return reply;
    }

    @Override
    public boolean isOpen() {
      return !isClosed;
    }

    @Override
    public void close() {
      isClosed = true;
      pending.forEach(one -> one.completeExceptionally(new IOException("closed")));
      onClose.run();
    }
  }

  @Override
  public void close() {
    onClose.run();
  }
}
