package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static redisthrottle.MemoryServer.ALLOWED;
import static redisthrottle.MemoryServer.error;
import static redisthrottle.MemoryServer.notSent;
import static redisthrottle.MemoryServer.range;
import static redisthrottle.MemoryServer.reply;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Runs calls in a cluster in memory whose slots move. */
@Timeout(30)
class ClusterTest {
  private static final Rule API = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));
  private static final List<Object> HALVES = List.of(range(0, 8191, "a"), range(8192, 16_383, "b"));
  private static final Duration TIMEOUT = Duration.ofSeconds(10);
  private final ManualClock clock = new ManualClock();
  private final MemoryServer cluster = new MemoryServer(List.of("a:1"), this::handle);

  /** The reply of each node to CLUSTER SLOTS. */
  private List<Object> mapOfA = HALVES;

  private List<Object> mapOfB = HALVES;

  /** Replies to a check. */
  private MemoryServer.Handler checks = (node, words) -> reply(ALLOWED);

  private CompletionStage<Object> handle(String node, List<String> words) {
    return switch (words.get(0)) {
      case "CLUSTER" -> reply(node.equals("a:1") ? mapOfA : mapOfB);
      case "ASKING" -> reply("OK");
      default -> checks.handle(node, words);
    };
  }

  /** Returns an item in a slot that belongs to the first or the second node. */
  private static Item itemOf(String node) {
    for (int at = 0; ; at++) {
      boolean isFirst = SlotMap.slotOf("rl:api:" + at) <= 8191;
      if (isFirst == node.equals("a")) {
        return API.of(Integer.toString(at));
      }
    }
  }

  private static CompletableFuture<Decision> check(Limiter limiter, String node) {
    return limiter.checkAsync(itemOf(node)).toCompletableFuture();
  }

  /** Returns a limiter with a connection to each node, which may read the map again. */
  private Limiter warm(int maxInFlight) {
    Limiter limiter =
        new LimiterBuilder(cluster, clock::view, Runnable::run)
            .jitter(() -> 1)
            .timeout(TIMEOUT)
            .maxInFlight(maxInFlight)
            .breaker(2, Duration.ofSeconds(1))
            .build();
    for (String node : List.of("a", "b")) {
      assertEquals(Source.SERVER, check(limiter, node).getNow(null).source());
    }
    clock.runUntil(clock.nanos() + TIMEOUT.toNanos());
    return limiter;
  }

  @Test
  void a_call_that_returns_to_its_first_node_is_in_the_line_of_that_node() {
    Limiter limiter = warm(10);
    CompletableFuture<Void> dial = new CompletableFuture<>();
    cluster.dialling.put("a:1", dial);
    checks =
        (node, words) -> {
          if (node.equals("a:1")) {
            return error("ASK 1 b:1");
          }
          cluster.open.get("a:1").isClosed = true;
          return notSent();
        };
    CompletableFuture<Decision> left = check(limiter, "a");
    assertFalse(left.isDone());
    left.cancel(true);
    checks = (node, words) -> reply(ALLOWED);
    dial.complete(null);
    for (String node : List.of("a", "b")) {
      CompletableFuture<Decision> next = check(limiter, node);
      assertTrue(next.isDone(), "a call to " + node + " waits");
      assertEquals(Source.SERVER, next.join().source());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"a", "b"})
  void a_map_without_slots_closes_no_connection(String reset) {
    Limiter limiter = warm(10);
    String other = reset.equals("a") ? "b" : "a";
    List<Object> whole = List.of(range(0, 16_383, other));
    mapOfA = reset.equals("a") ? List.of() : whole;
    mapOfB = reset.equals("b") ? List.of() : whole;
    String moved = "MOVED 1 " + other + ":1";
    checks = (node, words) -> node.startsWith(reset) ? error(moved) : reply(ALLOWED);
    cluster.dials.clear();
    for (String node : List.of(reset, other)) {
      assertEquals(Source.SERVER, check(limiter, node).join().source());
    }
    assertEquals(List.of(), List.copyOf(cluster.dials));
  }

  @Test
  void calls_to_a_node_that_leaves_are_decided_by_the_cluster() {
    Limiter limiter = warm(1);
    CompletableFuture<Object> late = new CompletableFuture<>();
    checks =
        (node, words) -> {
          if (node.equals("a:1")) {
            return late;
          }
          boolean isFirst = mapOfA == HALVES;
          mapOfA = List.of(range(0, 16_383, "b"));
          mapOfB = mapOfA;
          return isFirst ? error("CLUSTERDOWN of a test") : reply(ALLOWED);
        };
    CompletableFuture<Decision> sent = check(limiter, "a");
    CompletableFuture<Decision> inLine = check(limiter, "a");
    assertFalse(inLine.isDone());
    assertEquals(Reason.SERVER, check(limiter, "b").join().reason());
    assertTrue(inLine.isDone());
    assertEquals(Source.SERVER, inLine.join().source());
    assertFalse(sent.isDone());
    assertTrue(cluster.open.get("a:1").isOpen());
    late.complete(ALLOWED);
    assertEquals(Source.SERVER, sent.join().source());
    assertFalse(cluster.open.get("a:1").isOpen());
  }

  @Test
  void a_node_that_leaves_keeps_no_connection_of_a_silent_probe() {
    Limiter limiter = warm(10);
    checks =
        (node, words) ->
            node.equals("a:1") ? new CompletableFuture<>() : error("CLUSTERDOWN of a test");
    // The third call is the probe.
    for (int call = 0; call < 3; call++) {
      CompletableFuture<Decision> silent = check(limiter, "a");
      clock.runUntil(clock.nanos() + TIMEOUT.toNanos());
      assertEquals(Reason.TIMEOUT, silent.join().reason());
      clock.runUntil(clock.nanos() + 2_000_000_000L);
    }
    MemoryServer.One probed = cluster.open.get("a:1");
    assertTrue(probed.isOpen());
    mapOfA = List.of(range(0, 16_383, "b"));
    mapOfB = mapOfA;
    assertEquals(Reason.SERVER, check(limiter, "b").join().reason());
    assertFalse(probed.isOpen());
  }
}
