package redisthrottle.lettuce;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.resource.ClientResources;
import io.netty.channel.Channel;
import io.netty.util.concurrent.EventExecutor;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import redisthrottle.Connection;
import redisthrottle.Connector;
import redisthrottle.InvalidArgumentException;
import redisthrottle.ServerErrorException;

/**
 * Opens connections with Lettuce, over the resources and the options of the application's client,
 * which it never touches. Unlike that client, they send each command once: they do not connect
 * again by themselves, and queue no command. In a cluster there is one to each primary.
 */
public final class LettuceConnector implements Connector {
  /** The most dials for one connection, if the driver does not report why they failed. */
  private static final int DIALS_MAX = 3;

  /** The driver's errors of a connection that it closed because the login failed. */
  private static final Set<String> UNCLEAR =
      Set.of("Connection closed prematurely", "RedisHandshakeHandler not registered");

  private final Own own;
  private final List<RedisURI> uris;
  private final boolean isCluster;

  /** The ends of the connections that are open. */
  private final Set<CompletableFuture<Void>> open = ConcurrentHashMap.newKeySet();

  private LettuceConnector(
      @Nullable ClientResources resources,
      @Nullable ClientOptions options,
      List<RedisURI> uris,
      boolean isCluster) {
    this.own = new Own(present("resources", resources));
    this.own.setOptions(once(present("options", options)));
    this.uris = uris.stream().map(LettuceConnector::copy).toList();
    this.isCluster = isCluster;
  }

  /**
   * Returns a connector to a server, or through Sentinel to its primary.
   *
   * @param client the application's client, whose resources and options are used
   * @param uri the address, with the credentials
   */
  public static LettuceConnector of(RedisClient client, RedisURI uri) {
    RedisClient given = present("client", client);
    List<RedisURI> uris = List.of(present("uri", uri));
    return new LettuceConnector(given.getResources(), given.getOptions(), uris, false);
  }

  /**
   * Returns a connector to the primaries of a cluster.
   *
   * @param client the application's client, whose resources and options are used
   * @param seeds the addresses of some nodes, with the credentials, which are those of the first
   */
  public static LettuceConnector ofCluster(RedisClusterClient client, List<RedisURI> seeds) {
    RedisClusterClient given = present("client", client);
    if (present("seeds", seeds).isEmpty()) {
      throw new InvalidArgumentException("seeds", "the address of a node");
    }
    ClientOptions options = given.getOptions();
    return new LettuceConnector(given.getResources(), options, seeds, true);
  }

  private static <T> T present(String argument, @Nullable T value) {
    if (value == null) {
      throw new InvalidArgumentException(argument, "a value, not null");
    }
    return value;
  }

  /** Returns the options of connections that send each command once. */
  private static ClientOptions once(ClientOptions options) {
    return ClientOptions.builder()
        .protocolVersion(options.getConfiguredProtocolVersion())
        .socketOptions(options.getSocketOptions())
        .sslOptions(options.getSslOptions())
        .autoReconnect(false)
        .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
        .timeoutOptions(TimeoutOptions.builder().timeoutCommands(false).build())
        .build();
  }

  /** Returns a copy with all that the driver reads. Its own builder leaves the sentinels out. */
  private static RedisURI copy(@Nullable RedisURI given) {
    RedisURI uri = present("seeds", given);
    RedisURI copy = new RedisURI();
    if (uri.getSocket() != null) {
      copy.setSocket(uri.getSocket());
    } else if (uri.getHost() != null) {
      copy.setHost(uri.getHost());
      copy.setPort(uri.getPort());
    }
    if (uri.getSentinelMasterId() != null) {
      copy.setSentinelMasterId(uri.getSentinelMasterId());
      copy.getSentinels().addAll(uri.getSentinels());
    }
    copy.setDatabase(uri.getDatabase());
    copy.setClientName(uri.getClientName());
    copy.setLibraryName(uri.getLibraryName());
    copy.setLibraryVersion(uri.getLibraryVersion());
    copy.applyAuthentication(uri);
    copy.applySsl(uri);
    return copy;
  }

  @Override
  public List<String> seeds() {
    return isCluster
        ? uris.stream().map(uri -> uri.getHost() + ":" + uri.getPort()).toList()
        : List.of();
  }

  @Override
  public CompletionStage<Connection> connect(@Nullable String node, Duration timeout) {
    RedisURI uri = copy(uris.get(0));
    uri.setTimeout(timeout);
    if (node != null) {
      int colon = node.lastIndexOf(':');
      uri.setHost(node.substring(0, colon));
      uri.setPort(Integer.parseInt(node.substring(colon + 1)));
    }
    ClientOptions options = own.getOptions();
    SocketOptions socket = options.getSocketOptions();
    if (!socket.getConnectTimeout().equals(timeout)) {
      SocketOptions timed = socket.mutate().connectTimeout(timeout).build();
      own.setOptions(options.mutate().socketOptions(timed).build());
    }
    return dial(uri, DIALS_MAX)
        .handle(
            (connection, error) -> {
              if (error != null) {
                throw new CompletionException(refusal(error));
              }
              LettuceConnection opened = new LettuceConnection(connection, own.writer());
              open.add(opened.closed);
              opened.closed.whenComplete((done, failure) -> open.remove(opened.closed));
              return opened;
            });
  }

  /**
   * Dials, again if the error may hide the server's: when a login fails, the driver closes the
   * connection and reports what comes first, the refusal or a consequence of the close.
   */
  private CompletionStage<StatefulRedisConnection<String, String>> dial(RedisURI uri, int left) {
    return own.connectAsync(StringCodec.UTF8, uri)
        .toCompletableFuture()
        .exceptionallyCompose(
            error ->
                left > 1 && isUnclear(error)
                    ? dial(uri, left - 1)
                    : CompletableFuture.failedFuture(error));
  }

  private static boolean isUnclear(Throwable error) {
    for (Throwable one = error; one != null; one = one.getCause()) {
      if (UNCLEAR.contains(String.valueOf(one.getMessage()))) {
        return true;
      }
    }
    return false;
  }

  /** Returns the server's error inside of those of the driver, if there is one. */
  private static Throwable refusal(Throwable error) {
    for (Throwable one = error; one != null; one = one.getCause()) {
      if (one instanceof RedisCommandExecutionException reply) {
        return new ServerErrorException(String.valueOf(reply.getMessage()), error);
      }
    }
    Throwable cause = error.getCause();
    return error instanceof CompletionException && cause != null ? cause : error;
  }

  @Override
  public void close() {
    // Afterwards, because the driver warns of a connection that is closed twice.
    CompletableFuture.allOf(open.toArray(CompletableFuture<?>[]::new))
        .whenComplete((done, error) -> own.shutdownAsync(0, 0, TimeUnit.MILLISECONDS));
  }

  /** The client of the connector's connections. */
  private static final class Own extends RedisClient {
    Own(ClientResources resources) {
      super(resources, new RedisURI());
    }

    /**
     * Returns what writes the commands of the connection whose dial this thread completes: the
     * thread, if it reads the connection. A write of another thread wakes it first.
     */
    EventExecutor writer() {
      for (Channel channel : channels) {
        if (channel.eventLoop().inEventLoop()) {
          return channel.eventLoop();
        }
      }
      return getResources().eventExecutorGroup().next();
    }
  }
}
