package redisthrottle;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionStage;
import org.jspecify.annotations.Nullable;

/**
 * Opens the connections of a limiter. The adapter of a driver implements it. Its methods do not
 * block, and may be called by several threads.
 */
public interface Connector {
  /**
   * Opens a connection that can carry calls: TLS and login are done. It never connects again by
   * itself. The result fails with a {@link ServerErrorException} if the server refuses the login.
   *
   * @param node the address {@code host:port} of a node of a cluster; null for a single server
   * @param timeout the time after which the limiter gives up; a later connection is closed
   */
  CompletionStage<? extends Connection> connect(@Nullable String node, Duration timeout);

  /**
   * Returns the addresses {@code host:port} at which a cluster's slot map can be read. An empty
   * list means a single server.
   */
  default List<String> seeds() {
    return List.of();
  }

  /** Returns the address under which this process reaches a node that a cluster names. */
  default String translated(String node) {
    return node;
  }

  /** Closes what the adapter itself has opened, never the application's client. */
  default void close() {}
}
