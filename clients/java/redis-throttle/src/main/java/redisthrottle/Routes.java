package redisthrottle;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Sends commands to the nodes of a server or a cluster. */
interface Routes {
  CompletableFuture<@Nullable Object> send(Call call, Waiting waiting);

  /** Returns the name of the node of a call, if it is known; null for a single server. */
  @Nullable String nodeOf(Call call);

  /** Drops the connection to a node. Returns false if none is open. */
  boolean retire(@Nullable String node);

  /** Returns true if a connection to a node is open. */
  boolean isUp(@Nullable String node);

  /** Returns a route to each primary, for commands without a key. */
  CompletableFuture<List<Routes>> primaries();

  void close();

  /** The route to a single server. */
  final class Single implements Routes {
    private final Line line;
    private final Loop loop;

    Single(Line.Terms terms) {
      loop = terms.loop();
      line = new Line(terms, null);
    }

    @Override
    public CompletableFuture<@Nullable Object> send(Call call, Waiting waiting) {
      return line.send(call.words(), waiting, loop.nanos());
    }

    @Override
    public @Nullable String nodeOf(Call call) {
      return null;
    }

    @Override
    public boolean retire(@Nullable String node) {
      return line.retire();
    }

    @Override
    public boolean isUp(@Nullable String node) {
      return line.ready() != null;
    }

    @Override
    public CompletableFuture<List<Routes>> primaries() {
      return CompletableFuture.completedFuture(List.of(this));
    }

    @Override
    public void close() {
      line.close();
    }
  }
}
