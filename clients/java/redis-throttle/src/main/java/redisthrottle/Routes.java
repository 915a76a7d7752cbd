package redisthrottle;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Sends commands to the nodes of a server or a cluster. */
interface Routes {
  /**
   * Sends a command.
   *
   * @param pending the call whose command it is; null for one of a search, which takes no place
   */
  CompletableFuture<@Nullable Object> send(Words call, @Nullable Pending pending);

  /** Returns the node of a call; one without connections while the slot map is not known. */
  Node nodeOf(Words call);

  /** Returns the nodes that calls were sent to. */
  Collection<Node> nodes();

  /** Dials before the first call. */
  void dial();

  /** Returns the primaries, for commands without a key. */
  CompletableFuture<List<Node>> primaries();

  /** Returns the error of a call that was not redirected, as the caller sees it. */
  default Throwable explained(Throwable error) {
    return error;
  }

  void close();

  /** Sends a command of a search over the connection that is open or dialled. */
  static CompletableFuture<@Nullable Object> sendFree(Node node, List<String> words) {
    return node.link.opened().thenCompose(isOpen -> node.link.transmit(words));
  }

  /** The route to a single server. */
  final class Single implements Routes {
    private final Node node;

    Single(Link.Terms terms) {
      node = new Node(terms, null, () -> {});
    }

    @Override
    public CompletableFuture<@Nullable Object> send(Words call, @Nullable Pending pending) {
      return pending == null ? sendFree(node, call.list()) : node.send(call.list(), false, pending);
    }

    @Override
    public Node nodeOf(Words call) {
      return node;
    }

    @Override
    public Collection<Node> nodes() {
      return List.of(node);
    }

    @Override
    public void dial() {
      node.link.dial();
    }

    @Override
    public Throwable explained(Throwable error) {
      if (!Errors.beginsWith(error, "MOVED", "ASK")) {
        return error;
      }
      String reply = Errors.text(error);
      String text = "the server is a node of a cluster: use the cluster client (" + reply + ")";
      return new CommandRejectedException(reply.substring(0, reply.indexOf(' ')), text, error);
    }

    @Override
    public CompletableFuture<List<Node>> primaries() {
      return CompletableFuture.completedFuture(List.of(node));
    }

    @Override
    public void close() {
      node.close();
    }
  }
}
