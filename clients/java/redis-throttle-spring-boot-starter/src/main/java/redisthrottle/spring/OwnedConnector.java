package redisthrottle.spring;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.DisposableBean;
import redisthrottle.Connection;
import redisthrottle.Connector;
import redisthrottle.lettuce.LettuceConnector;

/** Opens connections with Lettuce, and ends its threads with the application. */
final class OwnedConnector implements Connector, DisposableBean {
  private static final long SHUTDOWN_S = 5;

  private final @Nullable ClientResources own;
  private final LettuceConnector connector;

  /**
   * Makes a connector.
   *
   * @param shared the resources of the application, which stay open; null without
   */
  OwnedConnector(ServerAddress address, @Nullable ClientResources shared) {
    own = shared == null ? ClientResources.create() : null;
    ClientResources resources = shared == null ? own : shared;
    connector = address.isCluster() ? cluster(address, resources) : single(address, resources);
  }

  // The clients only carry the resources and the options: they open no connection.

  private static LettuceConnector single(ServerAddress address, ClientResources resources) {
    RedisClient client = RedisClient.create(resources);
    if (address.ssl() != null) {
      client.setOptions(ClientOptions.builder().sslOptions(address.ssl()).build());
    }
    return LettuceConnector.of(client, address.uris().get(0));
  }

  private static LettuceConnector cluster(ServerAddress address, ClientResources resources) {
    RedisClusterClient client = RedisClusterClient.create(resources, address.uris());
    if (address.ssl() != null) {
      client.setOptions(ClusterClientOptions.builder().sslOptions(address.ssl()).build());
    }
    return LettuceConnector.ofCluster(client, address.uris());
  }

  @Override
  public CompletionStage<Connection> connect(@Nullable String node, Duration timeout) {
    return connector.connect(node, timeout);
  }

  @Override
  public List<String> seeds() {
    return connector.seeds();
  }

  @Override
  public void close() {
    connector.close();
  }

  /** Ends the threads. The limiter has closed its connections. */
  @Override
  public void destroy() {
    if (own != null) {
      own.shutdown(0, SHUTDOWN_S, TimeUnit.SECONDS)
          .awaitUninterruptibly(SHUTDOWN_S, TimeUnit.SECONDS);
    }
  }
}
