package snippets;

import java.time.Duration;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RScript;
import org.redisson.api.options.OptionalOptions;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.NatMapper;
import org.redisson.misc.RedisURI;

/** Callers that use Redisson, which sends a module's command only in a script. */
final class WithRedisson {
  private static final String SCRIPT = "return redis.call(ARGV[1], KEYS[1], 6, 10, 60)";

  private WithRedisson() {}

  static Calls.Caller single(int port, boolean once) {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
    return caller(config, once);
  }

  static Calls.Caller cluster(int port, int lossy, boolean once) {
    Config config = new Config();
    NatMapper way =
        node ->
            node.getPort() == port ? new RedisURI(node.getScheme(), node.getHost(), lossy) : node;
    config.useClusterServers().addNodeAddress("redis://127.0.0.1:" + port).setNatMapper(way);
    return caller(config, once);
  }

  private static Calls.Caller caller(Config config, boolean once) {
    OptionalOptions options = OptionalOptions.defaults().codec(StringCodec.INSTANCE);
    if (once) {
      options.retryAttempts(0).timeout(Duration.ofMillis(250));
    }
    RScript script = Redisson.create(config).getScript(options);
    String loaded = script.scriptLoad(SCRIPT);
    return key ->
        script.evalSha(
            RScript.Mode.READ_WRITE, loaded, RScript.ReturnType.LIST, List.of(key), "RL.GCRA");
  }
}
