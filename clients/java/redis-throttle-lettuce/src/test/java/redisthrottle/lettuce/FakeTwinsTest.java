package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletionException;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import redisthrottle.CalendarUnit;
import redisthrottle.CallOptions;
import redisthrottle.Connection;
import redisthrottle.Connector;
import redisthrottle.FakeServer;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.QuotaRule;
import redisthrottle.Rule;

/** Compares the fake server with a server whose clock is frozen, on random schedules. */
class FakeTwinsTest {
  private static final Duration PATIENT = Duration.ofMinutes(1);

  /** The instant at which the fake server's clock starts, in microseconds. */
  private static final long START = 1_704_067_200_000_000L;

  private static Server server;
  private final Random random = new Random(1);
  private FakeServer fake;
  private final List<Connector> connectors = new ArrayList<>();
  private final List<Connection> connections = new ArrayList<>();
  private final List<Limiter> limiters = new ArrayList<>();

  @BeforeAll
  static void start() {
    server = Server.withModule("--rl.debug-commands", "yes");
  }

  @AfterAll
  static void stop() {
    server.close();
  }

  @BeforeEach
  void begin() {
    server.send("FLUSHALL");
    server.send("RL.DEBUG", "CLOCK", "FREEZE", Long.toString(START));
    fake = new FakeServer();
    connectors.addAll(List.of(LettuceConnector.of(Server.CLIENT, server.uri()), fake));
    for (Connector one : connectors) {
      connections.add(one.connect(null, PATIENT).toCompletableFuture().join());
    }
    Connector real = LettuceConnector.of(Server.CLIENT, server.uri());
    limiters.add(Limiter.builder(real).timeout(PATIENT).build());
    limiters.add(fake.limiter().build());
  }

  @AfterEach
  void end() {
    limiters.forEach(Limiter::close);
    connections.forEach(Connection::close);
    connectors.forEach(Connector::close);
  }

  private void advance(long ms) {
    server.send("RL.DEBUG", "CLOCK", "ADVANCE", ms + "ms");
    fake.advance(Duration.ofMillis(ms));
  }

  /** Makes a call with both limiters, and compares the results. */
  private void both(String what, Function<Limiter, Object> call) {
    assertEquals(result(call, limiters.get(0)), result(call, limiters.get(1)), what);
  }

  private static Object result(Function<Limiter, Object> call, Limiter limiter) {
    try {
      return call.apply(limiter);
    } catch (RuntimeException e) {
      return e.toString();
    }
  }

  /** Sends a command to both, and compares the replies. */
  private void send(String... words) {
    send(Arrays.asList(words));
  }

  private void send(List<String> words) {
    assertEquals(
        reply(words, connections.get(0)), reply(words, connections.get(1)), words.toString());
  }

  private static Object reply(List<String> words, Connection connection) {
    try {
      return connection.send(words).toCompletableFuture().join();
    } catch (CompletionException e) {
      return e.getCause().getMessage();
    }
  }

  @SafeVarargs
  private <T> T any(T... of) {
    return of[random.nextInt(of.length)];
  }

  static List<Rule> rules() {
    Duration ten = Duration.ofSeconds(10);
    Duration second = Duration.ofSeconds(1);
    Duration minute = Duration.ofMinutes(1);
    List<Rule> all = new ArrayList<>();
    all.add(Rule.gcra("gcra", 6, 10, minute));
    all.add(Rule.gcra("odd", 5, 7, second));
    all.add(Rule.tokenBucket("token", 10, 3, Duration.ofSeconds(7)));
    all.add(Rule.leakyBucket("leaky", 4, 2, second));
    all.add(Rule.fixed("fixed", 5, ten));
    all.add(Rule.fixed("aligned", 5, ten).aligned());
    all.add(Rule.sliding("sliding", 20, ten));
    all.add(Rule.slidingLog("log", 5, ten));
    all.add(Rule.slidingLog("slots", 40, ten).slots(17));
    all.add(Rule.backoff("backoff", 3, second, Duration.ofSeconds(8), minute));
    for (CalendarUnit unit : CalendarUnit.values()) {
      all.add(Rule.quota(unit.name(), 9, unit));
    }
    all.add(Rule.policy("plan").fallback(Rule.fixed("plan", 5, ten)));
    return all;
  }

  private static boolean takesCost(Rule rule) {
    return !rule.name().equals("backoff") && !rule.name().equals("jobs");
  }

  @ParameterizedTest
  @MethodSource("rules")
  void decides_as_the_server_does(Rule rule) {
    for (int at = 0; at < 200; at++) {
      step(rule);
      advance(any(1L, 1L, 250L, 1000L, 3333L, 9999L, 90_000L, 86_400_000L));
    }
  }

  /** Makes a random call of one rule. */
  private void step(Rule rule) {
    int verb = random.nextInt(12);
    Item item = rule.of("42");
    if (takesCost(rule)) {
      long cost = any(1L, 1L, 1L, 2L, 0L, 7L);
      item = item.cost(verb < 2 ? Math.max(1, cost) : cost);
      int leave = verb < 2 ? 2 : random.nextInt(6);
      if (leave == 0) {
        item = item.leave(any(1L, 3L));
      } else if (leave == 1) {
        item = item.leavePercent(any(20, 100));
      }
      if (verb > 3 && cost > 0 && random.nextInt(4) == 0) {
        item = item.partial();
      }
    }
    Item asked = item;
    both(
        verb + " " + asked,
        limiter ->
            switch (verb) {
              case 0 -> limiter.refund(asked);
              case 1 -> limiter.charge(asked);
              case 2 -> limiter.peek(asked);
              default -> limiter.check(asked);
            });
  }

  @Test
  void decides_several_rules_as_the_server_does() {
    List<Rule> rules = new ArrayList<>(rules());
    rules.add(Rule.lease("jobs", 2, Duration.ofSeconds(3)));
    for (int at = 0; at < 200; at++) {
      Collections.shuffle(rules, random);
      List<Item> items = new ArrayList<>();
      for (Rule rule : rules.subList(0, 1 + random.nextInt(9))) {
        Item item = rule.of("42");
        if (takesCost(rule)) {
          item = item.cost(random.nextInt(3)).leave(any(0L, 0L, 0L, 1L));
        }
        if (rule instanceof QuotaRule && random.nextBoolean()) {
          item = rule.of("42").reserve(random.nextInt(3), Duration.ofMinutes(1));
        }
        items.add(item);
      }
      boolean isPeek = random.nextInt(4) == 0;
      CallOptions options = CallOptions.NONE.withId(Integer.toString(at % 5));
      both(
          at + " " + items,
          limiter -> isPeek ? limiter.peekAll(items, options) : limiter.checkAll(items, options));
      advance(any(1L, 250L, 1000L, 9000L));
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "FIXED 9 10",
        "FIXED 9 10 ALIGNED",
        "QUOTA 9 day",
        "USE plan DEFAULT FIXED 9 10",
        "GCRA 9 9 10",
        "USE plan DEFAULT GCRA 9 9 10"
      })
  void keeps_reservations_as_the_server_does(String rule) {
    for (int at = 0; at < 400; at++) {
      reserveOrEnd(Arrays.asList(rule.split(" ")));
      advance(any(1L, 1L, 400L, 3000L, 12_000L));
    }
  }

  /** Sends a random command to a key that has reservations. */
  private void reserveOrEnd(List<String> rule) {
    String id = "job-" + random.nextInt(3);
    String ttl = any("2", "5", "90");
    List<String> cost = List.of("COST", Integer.toString(random.nextInt(5)));
    List<String> taking = new ArrayList<>(cost);
    if (random.nextInt(3) == 0) {
      taking.addAll(List.of("LEAVE", any("1", "3", "20%")));
    }
    switch (random.nextInt(30)) {
      case 0, 10, 11, 12 -> send(words("RL.COMMIT", List.of(id), with(rule, cost)));
      case 1, 13, 14 -> send(words("RL.COMMIT", List.of(id), rule));
      case 2, 15 -> send(words("RL.CANCEL", List.of(id), rule));
      case 3 -> send(words("RL.PEEK", List.of(), with(rule, taking)));
      case 4 -> send(words("RL.CHARGE", List.of(), with(rule, cost)));
      case 5 -> send(words("RL.REFUND", List.of(), with(rule, cost)));
      case 6 -> {
        List<String> checked = with(rule, taking);
        send(words("RL." + checked.get(0), List.of(), checked.subList(1, checked.size())));
      }
      case 7 -> {
        String held = "RESERVE " + id + " " + ttl + " " + String.join(" ", with(rule, cost));
        send("RL.ALL", "k", held, "other", "GCRA 40 40 60");
      }
      case 8 -> send("RL.BLOCK", "k", "1");
      case 9 -> {
        // In frozen time the server keeps what has expired, and a DEL would count it.
        send("RL.BLOCK", "k", "1");
        send("DEL", "k");
      }
      default -> send(words("RL.RESERVE", List.of(id, ttl), with(rule, taking)));
    }
  }

  /** Returns a rule with options in their place. */
  private static List<String> with(List<String> rule, List<String> options) {
    boolean isAligned = rule.get(rule.size() - 1).equals("ALIGNED");
    int end = isAligned ? rule.size() - 1 : rule.size();
    List<String> all = new ArrayList<>(rule);
    all.addAll(rule.get(0).equals("USE") ? 2 : end, options);
    return all;
  }

  private static List<String> words(String command, List<String> first, List<String> rest) {
    List<String> all = new ArrayList<>(List.of(command, "k"));
    all.addAll(first);
    all.addAll(rest);
    return all;
  }

  @Test
  void keeps_leases_and_bans_as_the_server_does() {
    for (int at = 0; at < 400; at++) {
      // In frozen time the server keeps what has expired, so states of two types need a new key.
      String key = "k" + at;
      String id = "job-" + random.nextInt(4);
      String leave = any("0", "1", "3", "50%");
      switch (random.nextInt(12)) {
        case 0, 1 -> send("RL.RELEASE", "k", id);
        case 2 -> send("RL.RENEW", "k", id, "5");
        case 3 -> send("RL.PEEK", "k", "LEASE", id, "3", "5", "LEAVE", leave);
        case 4 -> send("RL.BLOCK", "k", "1");
        case 5 -> {
          send("RL.LEASE", key, id, "3", "5");
          send("RL.FIXED", key, "9", "1", "COST", "2");
          send("RL.CHARGE", key, "GCRA", "9", "9", "10");
          send("DEL", key);
        }
        case 6 -> {
          send("RL.CHARGE", key, "GCRA", "9", "9", "10");
          send("RL.RELEASE", key, id);
          send("RL.LEASE", key, id, "3", "5");
          send("DEL", key);
        }
        default -> send("RL.LEASE", "k", id, "3", "5", "LEAVE", leave);
      }
      advance(any(1L, 400L, 2000L));
    }
  }
}
