package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.internal.HostAndPort;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.MappingSocketAddressResolver;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import redisthrottle.CallOptions;
import redisthrottle.Decision;
import redisthrottle.FixedRule;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Reason;
import redisthrottle.Rule;
import redisthrottle.Source;

/** Runs against a cluster of three primaries, and behind a Sentinel. */
class ClusterTest {
  private static final int SLOTS_EACH = 5462;
  private static final Duration PATIENT = Duration.ofMinutes(1);
  private static final Rule API = Rule.gcra("api", 1000, 1, Duration.ofHours(1));
  private static final List<Server> NODES = new ArrayList<>();

  @BeforeAll
  static void start() {
    for (int at = 0; at < 3; at++) {
      Server one = Server.withModule("--cluster-enabled", "yes", "--cluster-node-timeout", "2000");
      NODES.add(one);
      // Nodes with one epoch take each other's slots until they have agreed on new ones.
      one.send("CLUSTER", "SET-CONFIG-EPOCH", Integer.toString(at + 1));
      int last = Math.min(at * SLOTS_EACH + SLOTS_EACH - 1, 16_383);
      one.send(
          "CLUSTER", "ADDSLOTSRANGE", Integer.toString(at * SLOTS_EACH), Integer.toString(last));
      NODES.get(0).send("CLUSTER", "MEET", "127.0.0.1", Integer.toString(one.port));
    }
    Server.await(
        "the cluster forms",
        () ->
            NODES.stream()
                .map(node -> node.send("CLUSTER", "INFO"))
                .allMatch(
                    info ->
                        info.contains("cluster_state:ok")
                            && info.contains("cluster_known_nodes:3")));
  }

  @AfterAll
  static void stop() {
    NODES.forEach(Server::close);
  }

  private static RedisClusterClient client() {
    return RedisClusterClient.create(NODES.get(0).uri());
  }

  private static LettuceConnector connector(RedisClusterClient client) {
    return LettuceConnector.ofCluster(client, List.of(NODES.get(0).uri()));
  }

  @Test
  void routes_calls_to_the_primaries_of_their_keys() {
    FixedRule day = Rule.fixed("day", 100, Duration.ofDays(1));
    try (RedisClusterClient client = client();
        Limiter limiter = Limiter.builder(connector(client)).timeout(PATIENT).build()) {
      for (int at = 0; at < 30; at++) {
        Item item = API.of("user:" + at);
        assertEquals(Source.SERVER, limiter.check(item).source());
        CallOptions tagged = CallOptions.NONE.withTag("user:" + at);
        Decision both = limiter.checkAll(List.of(item, day.of("all")), tagged);
        assertEquals(Source.SERVER, both.source());
        assertTrue(limiter.checkEach(List.of(item, day.of("all"))).allowed());
      }
    }
  }

  @Test
  void follows_a_slot_that_moves() {
    String key = "rl:api:moving";
    int slot = SlotHash.getSlot(key);
    Server from = NODES.get(slot / SLOTS_EACH);
    Server to = NODES.get((slot / SLOTS_EACH + 1) % 3);
    String source = from.send("CLUSTER", "MYID");
    String target = to.send("CLUSTER", "MYID");
    String number = Integer.toString(slot);
    try (RedisClusterClient client = client();
        Limiter limiter = Limiter.builder(connector(client)).timeout(PATIENT).build()) {
      assertEquals(999, limiter.check(API.of("moving")).remaining());
      to.send("CLUSTER", "SETSLOT", number, "IMPORTING", source);
      from.send("CLUSTER", "SETSLOT", number, "MIGRATING", target);
      from.send("MIGRATE", "127.0.0.1", Integer.toString(to.port), key, "0", "5000");
      // The key is on the new node, and the slot still on the old one: it replies with ASK.
      assertEquals(998, limiter.check(API.of("moving")).remaining());
      to.send("CLUSTER", "SETSLOT", number, "NODE", target);
      from.send("CLUSTER", "SETSLOT", number, "NODE", target);
      assertEquals(997, limiter.check(API.of("moving")).remaining());
    }
  }

  @Test
  void pauses_only_the_node_that_is_silent() {
    Map<Integer, Proxy> proxies = new HashMap<>();
    NODES.forEach(node -> proxies.put(node.port, new Proxy(node.port)));
    Function<HostAndPort, HostAndPort> translated =
        address -> HostAndPort.of("127.0.0.1", proxies.get(address.getPort()).port());
    ClientResources resources =
        ClientResources.builder()
            .socketAddressResolver(MappingSocketAddressResolver.create(translated))
            .build();
    List<String> subjects = List.of(subjectOf(2), subjectOf(0));
    try (RedisClusterClient client = RedisClusterClient.create(resources, NODES.get(0).uri());
        Limiter limiter = impatient(client, subjects)) {
      proxies.get(NODES.get(2).port).isSilent = true;
      assertEquals(Reason.TIMEOUT, limiter.check(API.of(subjects.get(0))).reason());
      assertEquals(Reason.CIRCUIT, limiter.check(API.of(subjects.get(0))).reason());
      assertEquals(Source.SERVER, limiter.check(API.of(subjects.get(1))).source());
    } finally {
      proxies.values().forEach(Proxy::close);
      resources.shutdown();
    }
  }

  /**
   * Returns a limiter that has connections to the nodes of some subjects, and whose breakers are
   * closed. On a busy machine a dial may take longer than the timeout, and one failure opens the
   * breaker for the whole test.
   */
  private static Limiter impatient(RedisClusterClient client, List<String> subjects) {
    List<Limiter> found = new ArrayList<>();
    Server.await(
        "decisions in time",
        () -> {
          Limiter limiter =
              Limiter.builder(connector(client))
                  .timeout(Duration.ofSeconds(2))
                  .breaker(1, Duration.ofMinutes(1))
                  .build();
          for (String subject : subjects) {
            if (limiter.check(API.of(subject)).source() != Source.SERVER) {
              limiter.close();
              return false;
            }
          }
          return found.add(limiter);
        });
    return found.get(0);
  }

  /** Returns a subject whose slot is on a node. */
  private static String subjectOf(int node) {
    for (int at = 0; ; at++) {
      if (SlotHash.getSlot("rl:api:" + at) / SLOTS_EACH == node) {
        return Integer.toString(at);
      }
    }
  }

  @Test
  void loads_the_library_on_all_primaries_of_a_cluster_with_the_module() {
    try (RedisClusterClient client = client();
        Limiter limiter =
            Limiter.builder(connector(client))
                .timeout(PATIENT)
                .backend(redisthrottle.Backend.FUNCTIONS)
                .build()) {
      assertEquals(Source.SERVER, limiter.check(API.of("functions")).source());
      NODES.forEach(node -> assertTrue(node.send("FUNCTION", "LIST").contains("redis_throttle")));
    }
  }

  @Test
  void queries_a_sentinel_for_the_primary(@TempDir Path folder) throws IOException {
    try (Server primary = Server.withModule();
        Server replica = Server.withModule()) {
      replica.send("REPLICAOF", "127.0.0.1", Integer.toString(primary.port));
      Path config = folder.resolve("sentinel.conf");
      Files.writeString(
          config,
          "sentinel monitor main 127.0.0.1 "
              + primary.port
              + " 1\nsentinel down-after-milliseconds main 500\n"
              + "sentinel failover-timeout main 5000\n");
      RedisClient client = Server.CLIENT;
      try (Server sentinel = Server.start(config.toString(), "--sentinel");
          Limiter limiter =
              Limiter.builder(
                      LettuceConnector.of(
                          client,
                          RedisURI.builder()
                              .withSentinel("127.0.0.1", sentinel.port)
                              .withSentinelMasterId("main")
                              .build()))
                  .timeout(PATIENT)
                  .breaker(5, Duration.ofMillis(50))
                  .build()) {
        assertEquals(Source.SERVER, limiter.check(API.of("a")).source());
        Server.await("a failover", () -> failsOver(sentinel));
        Server.await(
            "a decision of the new primary",
            () -> limiter.check(API.of("a")).source() == Source.SERVER && isPrimary(replica));
      }
    }
  }

  private static boolean isPrimary(Server server) {
    try {
      return server.send("INFO", "replication").contains("role:master");
    } catch (RuntimeException e) {
      // The Sentinel closes the connections to a server that it promotes.
      return false;
    }
  }

  private static boolean failsOver(Server sentinel) {
    try {
      sentinel.send("SENTINEL", "FAILOVER", "main");
      return true;
    } catch (RuntimeException e) {
      return false;
    }
  }
}
