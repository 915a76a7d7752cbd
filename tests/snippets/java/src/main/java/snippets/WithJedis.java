package snippets;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;

/** Callers that use Jedis. */
final class WithJedis {
  private static final ProtocolCommand GCRA = () -> "RL.GCRA".getBytes(StandardCharsets.US_ASCII);

  private WithJedis() {}

  static Calls.Caller single(int port, boolean once) {
    var options = options(once).build();
    return caller(
        RedisClient.builder().hostAndPort("127.0.0.1", port).clientConfig(options).build());
  }

  static Calls.Caller cluster(int port, int lossy, boolean once) {
    var options = options(once);
    options.hostAndPortMapper(
        node -> node.getPort() == port ? new HostAndPort("127.0.0.1", lossy) : node);
    var builder = RedisClusterClient.builder();
    builder.nodes(Set.of(new HostAndPort("127.0.0.1", port))).clientConfig(options.build());
    if (once) {
      builder.maxAttempts(1);
    }
    return caller(builder.build());
  }

  private static DefaultJedisClientConfig.Builder options(boolean once) {
    var options = DefaultJedisClientConfig.builder();
    return once ? options.connectionTimeoutMillis(250).socketTimeoutMillis(250) : options;
  }

  private static Calls.Caller caller(UnifiedJedis client) {
    return key -> client.executeCommand(new CommandArguments(GCRA).key(key).add(6).add(10).add(60));
  }
}
