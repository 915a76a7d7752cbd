package redisthrottle;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/** A server that replies to each command with the next item of its script. */
final class Script implements Connector {
  /** The clock of the replies that come later. */
  final Clock clock;

  private final Deque<JsonNode> items = new ArrayDeque<>();
  private final Map<String, Deque<JsonNode>> byKey = new HashMap<>();
  private final List<ScriptedConnection> open = new ArrayList<>();

  /** The commands that arrived. */
  final List<String> sent = new ArrayList<>();

  /** The commands without a reply. */
  final List<String> unexpected = new ArrayList<>();

  /** The nodes of a cluster by key; empty for a single server. */
  Map<String, String> nodes = Map.of();

  int dials;
  private int opened;

  /** The number of the connection on which the last command arrived. */
  int generation;

  boolean isOver;

  /** The tasks that run after all calls of an instant have begun; null if none are held. */
  private Deque<Runnable> held;

  Script(ManualClock clock) {
    this.clock = clock.view();
  }

  void add(List<JsonNode> replies, String key) {
    if (key == null) {
      items.addAll(replies);
    } else {
      byKey.computeIfAbsent(key, one -> new ArrayDeque<>()).addAll(replies);
    }
  }

  List<JsonNode> left() {
    List<JsonNode> all = new ArrayList<>(items);
    byKey.values().forEach(all::addAll);
    return all;
  }

  /** Makes dials and commands wait until {@link #release}. */
  void hold() {
    held = held == null ? new ArrayDeque<>() : held;
  }

  void release() {
    Deque<Runnable> waiting = held;
    held = null;
    waiting.forEach(Runnable::run);
  }

  private void whenReleased(Runnable task) {
    if (held == null) {
      task.run();
    } else {
      held.add(task);
    }
  }

  @Override
  public List<String> seeds() {
    return nodes.values().stream().distinct().toList();
  }

  /** Returns the reply of {@code CLUSTER SLOTS}: the slot of each key. */
  private JsonNode slots() {
    List<Object> ranges = new ArrayList<>();
    nodes.forEach(
        (key, node) -> {
          int slot = SlotMap.slotOf(key);
          String[] address = node.split(":");
          List<Object> primary = List.of(address[0], Integer.parseInt(address[1]));
          ranges.add(List.of(slot, slot, primary));
        });
    return SharedCases.JSON.valueToTree(ranges);
  }

  @Override
  public CompletionStage<Connection> connect(String node, Duration timeout) {
    CompletableFuture<Connection> dial = new CompletableFuture<>();
    whenReleased(() -> dial(dial, node));
    return dial;
  }

  private void dial(CompletableFuture<Connection> dial, String node) {
    dials++;
    boolean isRefused = isOver || is(items.peek(), "refuse");
    if (isRefused) {
      if (!isOver) {
        items.poll();
      }
      dial.completeExceptionally(new IOException("connection refused"));
      return;
    }
    if (items.peek() != null && items.peek().has("dial_ms")) {
      long nanos = items.poll().get("dial_ms").asLong() * 1_000_000;
      clock.after(nanos, () -> open(dial, node));
    } else {
      open(dial, node);
    }
  }

  private void open(CompletableFuture<Connection> dial, String node) {
    opened++;
    ScriptedConnection connection = new ScriptedConnection(opened, node);
    open.add(connection);
    dial.complete(connection);
  }

  private static boolean is(JsonNode item, String word) {
    return item != null && item.isTextual() && item.asText().equals(word);
  }

  /** Closes all connections from the server's side. */
  void disconnect() {
    List.copyOf(open).forEach(ScriptedConnection::close);
  }

  /** Records a command and returns the item of its reply. */
  private JsonNode nextItem(ScriptedConnection connection, List<String> words) {
    if (isOver) {
      return SharedCases.JSON.createObjectNode().put("error", "ERR the timeline is over");
    }
    generation = connection.number;
    String prefix = connection.node == null ? "" : connection.node + " ";
    sent.add(prefix + String.join(" ", words));
    for (String word : words.subList(1, words.size())) {
      Deque<JsonNode> own = byKey.get(word);
      if (own != null && !own.isEmpty()) {
        return own.poll();
      }
    }
    JsonNode item = items.poll();
    if (item == null) {
      String text = String.join(" ", words);
      unexpected.add(text.substring(0, Math.min(80, text.length())));
      return SharedCases.JSON.getNodeFactory().textNode("silent");
    }
    return item;
  }

  private final class ScriptedConnection implements Connection {
    final int number;
    final String node;
    private final Deque<Turn> turns = new ArrayDeque<>();
    private boolean isClosed;

    ScriptedConnection(int number, String node) {
      this.number = number;
      this.node = node;
    }

    /** A command that waits for its reply. Replies leave in the order of the commands. */
    private final class Turn {
      final CompletableFuture<Object> result = new CompletableFuture<>();
      JsonNode reply;

      void replyWith(JsonNode given) {
        reply = given;
        while (!turns.isEmpty() && turns.peek().reply != null) {
          turns.poll().complete();
        }
      }

      private void complete() {
        if (reply.isObject()) {
          String text = reply.get("error").asText();
          result.completeExceptionally(new ServerErrorException(text, null));
        } else {
          result.complete(SharedCases.reply(reply));
        }
      }
    }

    @Override
    public CompletionStage<Object> send(List<String> words) {
      Turn turn = new Turn();
      turns.add(turn);
      whenReleased(() -> arrive(turn, words));
      return turn.result;
    }

    private void arrive(Turn turn, List<String> words) {
      if (isClosed) {
        return;
      }
      if (words.get(0).equals("CLUSTER")) {
        turn.replyWith(slots());
        return;
      }
      JsonNode item = Script.this.nextItem(this, words);
      if (is(item, "silent")) {
        return;
      }
      if (is(item, "lost") || is(item, "close")) {
        close();
      } else if (item.has("delay_ms")) {
        long nanos = item.get("delay_ms").asLong() * 1_000_000;
        clock.after(nanos, () -> turn.replyWith(item.get("reply")));
      } else {
        turn.replyWith(item);
      }
    }

    @Override
    public boolean isOpen() {
      return !isClosed;
    }

    @Override
    public void close() {
      if (isClosed) {
        return;
      }
      isClosed = true;
      open.remove(this);
      while (!turns.isEmpty()) {
        turns.poll().result.completeExceptionally(new IOException("the connection was lost"));
      }
    }
  }
}
