package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import redisthrottle.FakeServer;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Rule;

/** Compares the fake server with a server whose clock is frozen, on random schedules. */
class FakeServerTest {
  /** The instant at which the fake server's clock starts, in microseconds. */
  private static final long START = 1_704_067_200_000_000L;

  private static Server server;
  private final Random random = new Random(1);
  private final FakeServer fake = new FakeServer();
  private Limiter real;
  private Limiter faked;

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
    LettuceConnector connector = LettuceConnector.of(Server.CLIENT, server.uri());
    real = Limiter.builder(connector).timeout(Duration.ofMinutes(1)).build();
    faked = fake.limiter().build();
  }

  @AfterEach
  void end() {
    real.close();
    faked.close();
  }

  private void advance(long ms) {
    server.send("RL.DEBUG", "CLOCK", "ADVANCE", ms + "ms");
    fake.advance(Duration.ofMillis(ms));
  }

  /** Makes a call with both limiters, and compares the results. */
  private void both(String what, Function<Limiter, Object> call) {
    assertEquals(call.apply(real), call.apply(faked), what);
  }

  @SafeVarargs
  private <T> T any(T... of) {
    return of[random.nextInt(of.length)];
  }

  /** Rules that both count in the same whole numbers. */
  static List<Rule> rules() {
    Duration ten = Duration.ofSeconds(10);
    return List.of(
        Rule.gcra("gcra", 6, 10, Duration.ofMinutes(1)),
        Rule.tokenBucket("token", 10, 3, Duration.ofSeconds(6)),
        Rule.leakyBucket("leaky", 4, 2, Duration.ofSeconds(1)),
        Rule.fixed("fixed", 5, ten),
        Rule.fixed("aligned", 5, ten).aligned(),
        // Its ticks are microseconds in both.
        Rule.sliding("sliding", 20, Duration.ofNanos(1000L << 20)),
        Rule.slidingLog("log", 5, ten));
  }

  @ParameterizedTest
  @MethodSource("rules")
  void decides_as_the_server_does(Rule rule) {
    for (int at = 0; at < 200; at++) {
      step(rule);
      advance(any(1L, 1L, 250L, 1000L, 3333L, 9999L, 90_000L));
    }
  }

  /** Makes a random call of one rule. */
  private void step(Rule rule) {
    int verb = random.nextInt(12);
    long cost = any(1L, 1L, 1L, 2L, 0L, 7L);
    Item plain = rule.of("42").cost(Math.max(1, cost));
    Item item = rule.of("42").cost(cost);
    int leave = random.nextInt(6);
    if (leave == 0) {
      item = item.leave(any(1L, 3L));
    } else if (leave == 1) {
      item = item.leavePercent(any(20, 100));
    }
    Item taken = cost > 0 && random.nextInt(4) == 0 ? item.partial() : item;
    Item looked = item;
    both(
        verb + " " + taken,
        limiter ->
            switch (verb) {
              case 0 -> limiter.refund(plain);
              case 1 -> limiter.charge(plain);
              case 2 -> limiter.peek(looked);
              default -> limiter.check(taken);
            });
  }

  @Test
  void decides_several_rules_as_the_server_does() {
    List<Rule> rules = new ArrayList<>(rules());
    for (int at = 0; at < 200; at++) {
      Collections.shuffle(rules, random);
      List<Item> items = new ArrayList<>();
      for (Rule rule : rules.subList(0, 1 + random.nextInt(rules.size()))) {
        items.add(rule.of("42").cost(random.nextInt(3)));
      }
      boolean isPeek = random.nextInt(4) == 0;
      both(at + " " + items, limiter -> isPeek ? limiter.peekAll(items) : limiter.checkAll(items));
      if (random.nextInt(20) == 0) {
        Duration time = Duration.ofSeconds(2);
        real.block(items.get(0), time);
        faked.block(items.get(0), time);
      }
      advance(any(1L, 250L, 1000L, 9000L));
    }
  }
}
