package snippets;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.BaseRedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.internal.HostAndPort;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.DnsResolver;
import io.lettuce.core.resource.MappingSocketAddressResolver;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.function.UnaryOperator;

/** Callers that use Lettuce. */
final class Lettuce {
  private static final Duration TIMEOUT = Duration.ofMillis(250);

  private static final ProtocolKeyword GCRA =
      new ProtocolKeyword() {
        @Override
        public byte[] getBytes() {
          return "RL.GCRA".getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public String toString() {
          return "RL.GCRA";
        }
      };

  private Lettuce() {}

  static Calls.Caller single(int port, boolean once) {
    RedisClient client = RedisClient.create();
    if (once) {
      client.setOptions(
          ClientOptions.builder()
              .replayFilter(command -> true)
              .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
              .build());
    }
    var connection = client.connect(RedisURI.create("127.0.0.1", port));
    if (once) {
      connection.setTimeout(TIMEOUT);
    }
    return caller(connection.sync());
  }

  static Calls.Caller cluster(int port, int lossy) {
    UnaryOperator<HostAndPort> way =
        node -> node.getPort() == port ? HostAndPort.of("127.0.0.1", lossy) : node;
    var resources = ClientResources.builder();
    resources.socketAddressResolver(
        MappingSocketAddressResolver.create(DnsResolver.unresolved(), way));
    RedisClusterClient client =
        RedisClusterClient.create(resources.build(), RedisURI.create("127.0.0.1", port));
    return caller(client.connect().sync());
  }

  private static Calls.Caller caller(BaseRedisCommands<String, String> commands) {
    return key -> {
      var arguments = new CommandArgs<>(StringCodec.UTF8).addKey(key).add(6).add(10).add(60);
      commands.dispatch(GCRA, new ArrayOutput<>(StringCodec.UTF8), arguments);
    };
  }
}
