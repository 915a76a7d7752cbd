package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import redisthrottle.middleware.KeyParts;

/** Runs the tables of cases.json. */
class CasesTest {
  /** The groups for tests of their own. */
  private static final Set<String> ELSEWHERE = Set.of("timelines", "responses", "events");

  /** The sections by name: from the input of a case, and what it expects, to the result. */
  private static final Map<String, BiFunction<JsonNode, JsonNode, Object>> SECTIONS =
      Map.ofEntries(
          Map.entry("durations", (input, wanted) -> durationWord(input)),
          Map.entry("rates", (input, wanted) -> rate(input.asText())),
          Map.entry("key_parts", (input, wanted) -> KeyParts.join(texts(input))),
          Map.entry("calls", (input, wanted) -> single(input).list()),
          Map.entry("calls_all", (input, wanted) -> several(input).list()),
          Map.entry("invalid_rules", (input, wanted) -> invalidRule(input)),
          Map.entry("keys", (input, wanted) -> key(input)),
          Map.entry("replies", (input, wanted) -> fieldsOf(decision(input), wanted)),
          Map.entry("replies_all", CasesTest::fieldsOfAll),
          Map.entry("retry_after", (input, wanted) -> retryAfter(input)),
          Map.entry("headers", (input, wanted) -> headers(input)),
          Map.entry("problems", (input, wanted) -> problem(input)),
          Map.entry("addresses", (input, wanted) -> address(input)),
          Map.entry("failure", (input, wanted) -> strictest(input)),
          Map.entry("errors", (input, wanted) -> errorKind(input)),
          Map.entry("defaults", CasesTest::defaults),
          Map.entry("invalid_options", CasesTest::invalidOptions));

  @TestFactory
  Stream<DynamicTest> cases() {
    List<DynamicTest> tests = new ArrayList<>();
    SharedCases.ALL
        .properties()
        .forEach(
            section -> {
              if (ELSEWHERE.contains(section.getKey())) {
                return;
              }
              for (JsonNode one : section.getValue()) {
                String name = section.getKey() + ": " + one.get("name").asText();
                tests.add(DynamicTest.dynamicTest(name, () -> run(section.getKey(), one)));
              }
            });
    return tests.stream();
  }

  private static void run(String section, JsonNode one) {
    BiFunction<JsonNode, JsonNode, Object> act = SECTIONS.get(section);
    assertNotNull(act, "nothing runs the section " + section);
    JsonNode wanted = one.get("expect");
    if (wanted.isObject() && wanted.has("error")) {
      RuntimeException thrown =
          assertThrows(RuntimeException.class, () -> act.apply(one.get("input"), wanted));
      if (wanted.get("error").asText().equals("protocol")) {
        assertInstanceOf(CommandRejectedException.class, thrown);
      } else if (!(thrown instanceof SharedCases.NotInJava)) {
        assertInstanceOf(InvalidArgumentException.class, thrown);
      }
      return;
    }
    JsonNode result = SharedCases.JSON.valueToTree(act.apply(one.get("input"), wanted));
    assertEquals(wanted.toString(), sorted(result, wanted).toString());
  }

  /** Returns the result with the fields in the order of the expected ones. */
  private static JsonNode sorted(JsonNode result, JsonNode wanted) {
    if (!result.isObject() || !wanted.isObject() || result.size() != wanted.size()) {
      return result;
    }
    ObjectNode all = SharedCases.JSON.createObjectNode();
    wanted
        .fieldNames()
        .forEachRemaining(
            name -> {
              if (result.has(name)) {
                all.set(name, sorted(result.get(name), wanted.get(name)));
              }
            });
    return all;
  }

  private static String durationWord(JsonNode input) {
    Rule rule = Rule.fixed("name", 1, SharedCases.duration(input));
    return rule.definition.words.get(2);
  }

  private static Object rate(String text) {
    Rate rate = Rate.of(text);
    assertEquals(rate, Rate.of(rate.toString()));
    Rule rule = Rule.fixed("name", rate);
    assertEquals(rate.rate(), rule.limit());
    return Map.of("rate", rate.rate(), "period", rule.definition.words.get(2));
  }

  /** Returns texts, with null for a part that is missing. */
  private static String[] texts(JsonNode input) {
    List<String> all = new ArrayList<>();
    input.forEach(one -> all.add(one.isNull() ? null : one.asText()));
    return all.toArray(String[]::new);
  }

  private static Keyed keyed(JsonNode input, JsonNode shared) {
    Item item = SharedCases.item(SharedCases.rule(input.get("rule")), input);
    String tag = shared.has("tag") ? shared.get("tag").asText() : null;
    String key = new Keys("rl", false, null).key(item.rule().name(), item.subject(), tag);
    return Steps.keyed(item, key, shared.path("id").asText(""));
  }

  private static Words single(JsonNode input) {
    Keyed keyed = keyed(input, input);
    String method = input.get("method").asText();
    return switch (method) {
      case "forget" -> Words.forget(keyed.key());
      case "block" -> Words.block(keyed.key(), SharedCases.duration(input.get("duration")));
      case "renew" -> Words.renew(keyed);
      case "release" -> Words.release(keyed);
      case "lease" -> Words.single("CHECK", keyed);
      case "check" -> {
        if (keyed.isLease()) {
          throw Checks.invalid("rule", "no lease");
        }
        yield Words.single("CHECK", keyed);
      }
      default -> Words.single(method.toUpperCase(Locale.ROOT), keyed);
    };
  }

  private static Words several(JsonNode input) {
    List<Keyed> all = new ArrayList<>();
    for (JsonNode one : input.get("calls")) {
      all.add(keyed(one, input));
    }
    return Words.several(all, input.path("method").asText().equals("peek_all"));
  }

  private static String invalidRule(JsonNode input) {
    InvalidArgumentException thrown =
        assertThrows(InvalidArgumentException.class, () -> SharedCases.rule(input));
    return switch (thrown.argument()) {
      case "onError" -> "on_error";
      case "localShare" -> "local_share";
      case "fallback" -> "default";
      default -> thrown.argument();
    };
  }

  private static String key(JsonNode input) {
    byte[] secret =
        input.has("hmac_secret")
            ? input.get("hmac_secret").asText().getBytes(StandardCharsets.UTF_8)
            : null;
    Keys keys = new Keys(input.path("prefix").asText("rl"), input.has("hash_tag"), secret);
    String tag = input.has("tag") ? input.get("tag").asText() : null;
    return keys.key(input.get("rule").asText(), input.get("subject").asText(), tag);
  }

  private static List<Keyed> all(JsonNode input) {
    List<Keyed> all = new ArrayList<>();
    JsonNode rules = input.get("rules");
    for (JsonNode one : rules == null ? List.of(input.get("rule")) : rules) {
      Item item = SharedCases.item(SharedCases.rule(one), input);
      all.add(Steps.keyed(item, "", ""));
    }
    return all;
  }

  /** Returns the decision that a case describes. */
  private static Decision decision(JsonNode input) {
    List<Keyed> all = all(input);
    if (input.path("source").asText().equals("error")) {
      boolean allowed = input.path("allowed").asBoolean();
      long ms = input.path("retry_after_ms").asLong();
      UnavailableException unavailable = UnavailableException.sent(Reason.TIMEOUT, "", null);
      return Draft.decision(all.get(0).rule(), allowed, 6, 0, 0, ms, 0, Source.ERROR, unavailable);
    }
    Object reply = SharedCases.reply(input.get("reply"));
    return all.size() > 1 ? Replies.several(reply, all) : Replies.decision(reply, all.get(0));
  }

  static JsonNode fieldsOf(Decision d, JsonNode wanted) {
    ObjectNode fields = SharedCases.JSON.createObjectNode();
    wanted.fieldNames().forEachRemaining(name -> fields.putPOJO(name, SharedCases.field(d, name)));
    return SharedCases.JSON.valueToTree(fields);
  }

  private static Object fieldsOfAll(JsonNode input, JsonNode wanted) {
    Decision d = decision(input);
    ObjectNode all = SharedCases.JSON.createObjectNode();
    all.set("decision", fieldsOf(d, wanted.get("decision")));
    ArrayNode rows = all.putArray("rows");
    for (int at = 0; at < d.rows().size(); at++) {
      rows.add(fieldsOf(d.rows().get(at), wanted.get("rows").get(at)));
    }
    return all;
  }

  private static Object retryAfter(JsonNode input) {
    Rule rule = Rule.gcra("api", 1, 1, Duration.ofSeconds(1));
    Decision d = Draft.decision(rule, false, 1, 0, 0, input.asLong(), 0, Source.SERVER, null);
    return d.headers(List.of(), Instant.now()).get("Retry-After");
  }

  private static Object headers(JsonNode input) {
    Decision d = decision(input);
    if (!input.has("styles")) {
      return d.headers();
    }
    return d.headers(
        SharedCases.styles(input.get("styles")),
        Instant.ofEpochMilli(input.path("now_ms").asLong()));
  }

  private static Object problem(JsonNode input) {
    boolean hasNone = input.path("no_subject").asBoolean();
    Problem problem = hasNone ? Problem.noSubject() : decision(input).problem();
    try {
      return Map.of("status", problem.status(), "body", SharedCases.JSON.readTree(problem.json()));
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  private static Object address(JsonNode input) {
    List<String> trusted = new ArrayList<>();
    input.get("trusted").forEach(one -> trusted.add(one.asText()));
    List<String> forwarded = new ArrayList<>();
    input.get("forwarded").forEach(one -> forwarded.add(one.asText()));
    JsonNode given = input.path("peer");
    String peer = given.isTextual() ? given.asText() : null;
    Proxies proxies = Proxies.trust(trusted);
    String subject = proxies.subject(peer, forwarded);
    boolean hasAddress = Proxies.trust(List.of()).subject(peer, List.of()) != null;
    String client = subject == null && !hasAddress ? "peer:" : subject;
    assertEquals(client, proxies.client(peer, forwarded));
    return subject;
  }

  private static Object strictest(JsonNode input) {
    List<OnError> all = new ArrayList<>();
    input.forEach(one -> all.add(SharedCases.onError(one.asText())));
    return OnError.strictest(all).name().toLowerCase(Locale.ROOT);
  }

  private static Object errorKind(JsonNode input) {
    RuntimeException known = Errors.classified(new ServerErrorException(input.asText(), null));
    return known instanceof CommandRejectedException ? "rejected" : "unavailable";
  }

  private static LimiterBuilder builder(JsonNode options) {
    LimiterBuilder builder =
        new LimiterBuilder(new Script(new ManualClock()), Clock::system, Runnable::run);
    options.properties().forEach(one -> SharedCases.set(builder, one.getKey(), one.getValue()));
    return builder;
  }

  /** Returns the options that the error names, which are all that it has to name. */
  private static Object invalidOptions(JsonNode input, JsonNode wanted) {
    InvalidArgumentException thrown =
        assertThrows(InvalidArgumentException.class, () -> builder(input).build());
    String text = String.valueOf(thrown.getMessage());
    List<String> named = new ArrayList<>();
    for (JsonNode one : wanted) {
      String[] parts = one.asText().replaceAll("_ms$", "").split("_");
      StringBuilder name = new StringBuilder(parts[0]);
      for (int at = 1; at < parts.length; at++) {
        name.append(parts[at].substring(0, 1).toUpperCase(Locale.ROOT));
        name.append(parts[at].substring(1));
      }
      if (text.contains(name)) {
        named.add(one.asText());
      }
    }
    return named;
  }

  private static Object defaults(JsonNode input, JsonNode wanted) {
    Options o = builder(input).options();
    ObjectNode all = SharedCases.JSON.createObjectNode();
    all.put("timeout_ms", o.timeout.toMillis());
    all.put("silence_ms", o.silence().toMillis());
    all.put("max_waiting", o.maxWaiting);
    all.put("known_denials", o.knownDenials);
    all.put("log_errors", o.isLogging);
    all.put("on_error", o.onError.name().toLowerCase(Locale.ROOT));
    all.put("max_in_flight", o.maxInFlight);
    all.put("breaker_failures", o.breakerFailures);
    all.put("breaker_pause_ms", o.breakerPause.toMillis());
    all.put("denial_cache", o.denialCache);
    all.put("denial_cache_max_ms", o.denialCacheMax.toMillis());
    all.put("prefetch", o.prefetch);
    all.put("backend", o.backend.word());
    all.put("prefix", o.prefix);
    all.putPOJO("hash_tag", o.isTagged ? "subject" : null);
    all.putPOJO("hmac_secret", o.hmacSecret);
    all.putPOJO("on_decision", o.onDecision);
    List<String> others = new ArrayList<>();
    all.fieldNames().forEachRemaining(others::add);
    others.removeIf(wanted::has);
    return all.without(others);
  }
}
