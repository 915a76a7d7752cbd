package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.FieldSource;

/**
 * Runs the examples of the doc comments over a fake server. Each is also the body of a method here,
 * whose name is that of the class and of the function: {@code limiterCheck} for {@code
 * Limiter.check}.
 */
class ExamplesTest {
  /** The functions that a reader needs in the first hour. */
  static final List<String> FIRST_HOUR =
      List.of(
          "Admission.settle",
          "Limiter.admit",
          "Limiter.builder",
          "Limiter.charge",
          "Limiter.check",
          "Limiter.checkAll",
          "Limiter.checkAsync",
          "Limiter.lease",
          "Limiter.peek",
          "Limiter.refund",
          "Limiter.reserve",
          "Rate.of",
          "Reservation.commit",
          "Rule.backoff",
          "Rule.fixed",
          "Rule.gcra",
          "Rule.leakyBucket",
          "Rule.lease",
          "Rule.policy",
          "Rule.quota",
          "Rule.sliding",
          "Rule.slidingLog",
          "Rule.tokenBucket");

  private static final int RESET_MS = 20 * 86_400_000;
  private static final List<Integer> TAKEN = List.of(1, 100_000, 99_500, 0, RESET_MS);
  private static final List<Integer> SETTLED = List.of(1, 100_000, 99_580, 0, RESET_MS);
  private static final List<Integer> FREED = List.of(1, 100_000, 100_000, 0, 0);
  private static final List<Object> RESERVED = List.of(1, 100_000, 99_500, 0, RESET_MS, 1, TAKEN);
  private static final List<Integer> GRANTED = List.of(1, 4, 3, 0, 30_000);

  /** The server's replies in the examples whose rules the fake server does not compute. */
  private static final Map<String, List<Object>> REPLIES =
      Map.of(
          "Limiter.lease", List.of(GRANTED, 1),
          "Limiter.reserve", List.of(RESERVED, FREED),
          "Reservation.commit", List.of(RESERVED, SETTLED, SETTLED),
          "Rule.backoff", List.of(List.of(1, 3, 2, 0, 3_600_000)),
          "Rule.lease", List.of(GRANTED, 1),
          "Rule.policy", List.of(List.of(1, 10, 9, 0, 6000, 1, 0)),
          "Rule.quota", List.of(TAKEN));

  private static final Path SOURCES = Path.of("src/main/java/redisthrottle");
  private static final Pattern EXAMPLE = Pattern.compile("(?s)<pre>\\{@code\n(.*?)\n *\\* }</pre>");
  private static final Pattern PRINTED = Pattern.compile("println\\(.*\\).*; // (.*)");

  private final FakeServer server = new FakeServer();
  private final Connector connector = server;
  private final Limiter limiter = server.limiter().build();

  @AfterEach
  void close() {
    limiter.close();
  }

  void admissionSettle() {
    Rule tokens = Rule.tokenBucket("tokens", 9000, Rate.of("9000/minute"));
    try (Admission admitted = limiter.admit(List.of(tokens.of("acme").cost(500)))) {
      admitted.settle(tokens, 420);
    }
    System.out.println(limiter.peek(tokens.of("acme").cost(0)).remaining()); // 8580
  }

  void limiterAdmit() {
    Rule calls = Rule.gcra("calls", 10, Rate.of("10/minute"));
    Rule tokens = Rule.tokenBucket("tokens", 9000, Rate.of("9000/minute"));
    List<Item> items = List.of(calls.of("acme"), tokens.of("acme").cost(500));
    try (Admission admitted = limiter.admit(items)) {
      System.out.println(admitted.decision().rows().get(1).remaining()); // 8500
    }
  }

  void limiterBuilder() {
    // With Lettuce: connector = LettuceConnector.of(redisClient, redisUri)
    try (Limiter limiter = Limiter.builder(connector).timeout(Duration.ofSeconds(2)).build()) {
      Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
      System.out.println(limiter.check(api.of("user:42")).remaining()); // 9
    }
  }

  void limiterCharge() {
    Rule tokens = Rule.tokenBucket("tokens", 1000, Rate.of("1000/minute"));
    limiter.charge(tokens.of("acme").cost(1500)); // a debt of 500 units
    System.out.println(limiter.check(tokens.of("acme")).retryAfter()); // PT30.06S
  }

  void limiterCheck() {
    Rule api = Rule.gcra("api", 1, Rate.of("10/minute"));
    System.out.println(limiter.check(api.of("user:42")).allowed()); // true
    Decision second = limiter.check(api.of("user:42"));
    System.out.println(second.allowed()); // false
    System.out.println(second.retryAfter()); // PT6S
  }

  void limiterCheckAll() {
    Rule user = Rule.gcra("user", 10, Rate.of("10/minute"));
    Rule team = Rule.fixed("team", 1000, Duration.ofDays(1));
    Decision d = limiter.checkAll(List.of(user.of("42"), team.of("acme")));
    System.out.println(d.allowed()); // true
    System.out.println(d.rows().get(1).remaining()); // 999
  }

  void limiterCheckAsync() {
    Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
    CompletionStage<Decision> decision = limiter.checkAsync(api.of("user:42"));
    decision.thenAccept(d -> System.out.println(d.remaining())); // 9
  }

  void limiterLease() {
    Rule jobs = Rule.lease("jobs", 4, Duration.ofSeconds(30));
    try (Lease lease = limiter.lease(jobs.of("acme"))) {
      System.out.println(lease.isHeld()); // true
    }
  }

  void limiterPeek() {
    Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
    System.out.println(limiter.peek(api.of("user:42").cost(0)).remaining()); // 10
  }

  void limiterRefund() {
    Rule api = Rule.gcra("api", 10, Rate.of("10/minute"));
    System.out.println(limiter.check(api.of("user:42").cost(5)).remaining()); // 5
    System.out.println(limiter.refund(api.of("user:42").cost(3)).remaining()); // 8
  }

  void limiterReserve() {
    Rule tokens = Rule.quota("tokens", 100_000, CalendarUnit.MONTH);
    try (Reservation reserved = limiter.reserve(tokens.of("acme").reserve(500))) {
      System.out.println(reserved.decision().remaining()); // 99500
    }
  }

  void rateOf() {
    Rate rate = Rate.of("5 per 2 hours");
    System.out.println(rate.rate() + " in " + rate.period()); // 5 in PT2H
  }

  void reservationCommit() {
    Rule tokens = Rule.quota("tokens", 100_000, CalendarUnit.MONTH);
    try (Reservation reserved = limiter.reserve(tokens.of("acme").reserve(500))) {
      reserved.commit(420);
    }
    System.out.println(limiter.peek(tokens.of("acme").cost(0)).remaining()); // 99580
  }

  void ruleBackoff() {
    Duration second = Duration.ofSeconds(1);
    Duration minute = Duration.ofMinutes(1);
    Rule login = Rule.backoff("login", 3, second, minute, Duration.ofHours(1));
    System.out.println(limiter.check(login.of("ada")).remaining()); // 2
  }

  void ruleFixed() {
    Rule exports = Rule.fixed("exports", 5, Duration.ofHours(1));
    System.out.println(limiter.check(exports.of("user:42")).resetAfter()); // PT1H
  }

  void ruleGcra() {
    Rule api = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));
    System.out.println(limiter.check(api.of("user:42")).remaining()); // 9
  }

  void ruleLeakyBucket() {
    Rule hooks = Rule.leakyBucket("hooks", 50, 10, Duration.ofSeconds(1));
    System.out.println(limiter.check(hooks.of("shop.example")).retryAfter()); // PT0S
    System.out.println(limiter.check(hooks.of("shop.example")).retryAfter()); // PT0.1S
  }

  void ruleLease() {
    Rule jobs = Rule.lease("jobs", 4, Duration.ofSeconds(30));
    try (Lease lease = limiter.lease(jobs.of("acme"))) {
      System.out.println(lease.decision().remaining()); // 3
    }
  }

  void rulePolicy() {
    // The server has the limit: RL.POLICY SET api GCRA 10 10 60
    Rule api = Rule.policy("api");
    System.out.println(limiter.check(api.of("user:42")).remaining()); // 9
  }

  void ruleQuota() {
    Rule tokens = Rule.quota("tokens", 100_000, CalendarUnit.MONTH);
    System.out.println(limiter.check(tokens.of("acme").cost(500)).remaining()); // 99500
  }

  void ruleSliding() {
    Rule posts = Rule.sliding("posts", 100, Duration.ofHours(1));
    System.out.println(limiter.check(posts.of("user:42")).remaining()); // 99
  }

  void ruleSlidingLog() {
    Rule codes = Rule.slidingLog("codes", 3, Duration.ofMinutes(10));
    System.out.println(limiter.check(codes.of("+49301234567")).remaining()); // 2
  }

  void ruleTokenBucket() {
    Rule tokens = Rule.tokenBucket("tokens", 9000, 9000, Duration.ofMinutes(1));
    System.out.println(limiter.check(tokens.of("acme").cost(500)).remaining()); // 8500
  }

  @ParameterizedTest
  @FieldSource("FIRST_HOUR")
  void a_function_of_the_first_hour_has_an_example_that_prints_its_results(String function)
      throws Exception {
    int dot = function.indexOf('.');
    String method =
        function.substring(0, 1).toLowerCase(Locale.ROOT)
            + function.substring(1, dot)
            + function.substring(dot + 1, dot + 2).toUpperCase(Locale.ROOT)
            + function.substring(dot + 2);
    String example = exampleOf(function.substring(0, dot), function.substring(dot + 1));
    assertEquals(bodyOf(method), example);
    server.script(REPLIES.getOrDefault(function, List.of()).toArray());
    Stream<String> results = PRINTED.matcher(example).results().map(one -> one.group(1));
    assertEquals(results.toList(), linesOf(method));
    assertEquals(0, limiter.counters().rejected());
  }

  @Test
  void the_list_names_all_examples_of_the_sources() throws IOException {
    long examples = 0;
    try (Stream<Path> files = Files.list(SOURCES)) {
      for (Path file : files.filter(Files::isRegularFile).toList()) {
        examples += EXAMPLE.matcher(Files.readString(file)).results().count();
      }
    }
    assertEquals(FIRST_HOUR.size(), examples);
  }

  /** Returns the example in the doc comment of a function, the first of its name in the class. */
  private static String exampleOf(String type, String name) throws IOException {
    String comment = "/\\*\\*((?:(?!\\*/).)*)\\*/\\s*public [\\w<> ]*\\b";
    Pattern documented = Pattern.compile("(?s)" + comment + Pattern.quote(name) + "\\(");
    Matcher found = documented.matcher(Files.readString(SOURCES.resolve(type + ".java")));
    assertTrue(found.find(), "no doc comment");
    Matcher example = EXAMPLE.matcher(found.group(1));
    assertTrue(example.find(), "no example");
    return example.group(1).replaceAll("(?m)^ *\\* ?", "");
  }

  /** Returns the body of a method of this class. */
  private static String bodyOf(String method) throws IOException {
    String source = Files.readString(Path.of("src/test/java/redisthrottle/ExamplesTest.java"));
    Matcher found =
        Pattern.compile("(?s)\n  void " + method + "\\(\\) \\{\n(.*?)\n  }\n").matcher(source);
    assertTrue(found.find(), "no method " + method);
    return found.group(1).stripIndent();
  }

  /** Returns the lines that a method of this class prints. */
  private List<String> linesOf(String method) throws Exception {
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    PrintStream before = System.out;
    System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
    try {
      getClass().getDeclaredMethod(method).invoke(this);
    } finally {
      System.setOut(before);
    }
    return printed.toString(StandardCharsets.UTF_8).lines().toList();
  }
}
