package redisthrottle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads cases.json, which all clients share. */
final class SharedCases {
  static final ObjectMapper JSON = new ObjectMapper();
  static final JsonNode ALL = read();
  private static final Pattern DURATION = Pattern.compile("(\\d+(?:\\.\\d{1,6})?)(ms|s|m|h|d)?");
  private static final Map<String, Count> COUNTS =
      Map.of("all", Count.ALL, "failures", Count.FAILURES);
  private static final Map<String, BigDecimal> MICROS =
      Map.of(
          "ms", BigDecimal.valueOf(1_000),
          "s", BigDecimal.valueOf(1_000_000),
          "m", BigDecimal.valueOf(60_000_000),
          "h", BigDecimal.valueOf(3_600_000_000L),
          "d", BigDecimal.valueOf(86_400_000_000L));

  private SharedCases() {}

  private static JsonNode read() {
    try {
      return JSON.readTree(Path.of("../../cases.json").toFile());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Thrown for an argument that no Java program can pass, such as a fractional number of units. */
  static final class NotInJava extends RuntimeException {
    NotInJava(String text) {
      super(text);
    }
  }

  /** Returns the duration that a case writes: a number is seconds. */
  static Duration duration(JsonNode given) {
    if (given.isNumber()) {
      BigDecimal nanos = BigDecimal.valueOf(given.doubleValue()).movePointRight(9);
      return Duration.ofNanos(nanos.setScale(0, RoundingMode.HALF_UP).longValue());
    }
    Matcher found = DURATION.matcher(given.asText());
    if (!found.matches()) {
      throw new NotInJava(given.toString());
    }
    BigDecimal unit = MICROS.get(found.group(2) == null ? "s" : found.group(2));
    BigDecimal nanos = new BigDecimal(found.group(1)).multiply(unit).movePointRight(3);
    return Duration.ofNanos(nanos.setScale(0, RoundingMode.HALF_UP).longValue());
  }

  static long units(JsonNode given, String name) {
    JsonNode value = given.path(name);
    if (value.isNumber() && value.doubleValue() != Math.rint(value.doubleValue())) {
      throw Checks.invalid(name, "an integer");
    }
    return value.asLong();
  }

  static Rule rule(JsonNode given) {
    Rule rule = rule(given.get("kind").asText(), given.get("name").asText(), given);
    if (given.has("local_share")) {
      rule = rule.localShare(given.get("local_share").asDouble());
    }
    if (given.has("prefetch")) {
      rule = rule.prefetch((int) units(given, "prefetch"));
    }
    if (given.has("count")) {
      rule = rule.count(COUNTS.get(given.get("count").asText()));
    }
    return given.has("on_error") ? rule.onError(onError(given.get("on_error").asText())) : rule;
  }

  static OnError onError(String word) {
    for (OnError one : OnError.values()) {
      if (one.name().toLowerCase().equals(word)) {
        return one;
      }
    }
    throw Checks.invalid("onError", "allow, deny or local");
  }

  private static Rule rule(String kind, String name, JsonNode given) {
    onlyFor(kind, given, "aligned", "fixed");
    onlyFor(kind, given, "slots", "sliding_log");
    onlyFor(kind, given, "zone", "quota");
    onlyFor(kind, given, "start", "quota");
    onlyFor(kind, given, "variants", "policy");
    onlyFor(kind, given, "default", "policy");
    return switch (kind) {
      case "gcra" ->
          Rule.gcra(name, units(given, "burst"), units(given, "rate"), d(given, "period"));
      case "token_bucket" ->
          Rule.tokenBucket(
              name, units(given, "capacity"), units(given, "rate"), d(given, "period"));
      case "leaky_bucket" ->
          Rule.leakyBucket(
              name, units(given, "capacity"), units(given, "rate"), d(given, "period"));
      case "fixed" -> {
        FixedRule rule = Rule.fixed(name, units(given, "limit"), d(given, "window"));
        yield given.path("aligned").asBoolean() ? rule.aligned() : rule;
      }
      case "sliding" -> Rule.sliding(name, units(given, "limit"), d(given, "window"));
      case "sliding_log" -> {
        SlidingLogRule rule = Rule.slidingLog(name, units(given, "limit"), d(given, "window"));
        yield given.has("slots") ? rule.slots((int) units(given, "slots")) : rule;
      }
      case "backoff" ->
          Rule.backoff(
              name,
              units(given, "attempts"),
              d(given, "base"),
              d(given, "max"),
              d(given, "forget"));
      case "quota" -> quota(name, given);
      case "lease" -> Rule.lease(name, units(given, "limit"), d(given, "ttl"));
      case "policy" -> policy(name, given);
      default -> throw new NotInJava(kind);
    };
  }

  private static void onlyFor(String kind, JsonNode given, String option, String wanted) {
    if (given.has(option) && !kind.equals(wanted)) {
      throw Checks.invalid(option, "another kind of rule; in Java this does not compile");
    }
  }

  private static Duration d(JsonNode given, String name) {
    return duration(given.path(name));
  }

  private static Rule quota(String name, JsonNode given) {
    String unit = given.get("unit").asText();
    CalendarUnit found = null;
    for (CalendarUnit one : CalendarUnit.values()) {
      found = one.word().equals(unit) ? one : found;
    }
    QuotaRule rule = Rule.quota(name, units(given, "limit"), found);
    rule = given.has("zone") ? rule.zone(given.get("zone").asText()) : rule;
    return given.has("start") ? rule.start(given.get("start").asText()) : rule;
  }

  private static Rule policy(String name, JsonNode given) {
    PolicyRule rule = Rule.policy(name);
    if (given.has("variants")) {
      List<String> names = new ArrayList<>();
      given.get("variants").forEach(one -> names.add(one.asText()));
      rule = rule.variants(names.toArray(String[]::new));
    }
    return given.has("default") ? rule.fallback(rule(given.get("default"))) : rule;
  }

  /** Returns the item of a rule that a case describes. */
  static Item item(Rule rule, JsonNode given) {
    Item item = rule.of(given.path("subject").asText());
    if (given.has("cost")) {
      item = item.cost(units(given, "cost"));
    }
    JsonNode leave = given.path("leave");
    if (leave.isNumber()) {
      item = item.leave(units(given, "leave"));
    } else if (leave.isTextual()) {
      String text = leave.asText();
      if (!text.matches("-?\\d+%")) {
        throw new NotInJava(text);
      }
      item = item.leavePercent(Integer.parseInt(text.substring(0, text.length() - 1)));
    }
    if (given.has("reserve")) {
      long units = units(given, "reserve");
      item = given.has("ttl") ? item.reserve(units, d(given, "ttl")) : item.reserve(units);
    }
    return given.path("partial").asBoolean() ? item.partial() : item;
  }

  /** Sets an option of a limiter. */
  static void set(LimiterBuilder builder, String option, JsonNode value) {
    Options o = builder.options();
    switch (option) {
      case "timeout_ms" -> builder.timeout(Duration.ofMillis(value.asLong()));
      case "silence_ms" -> builder.silence(Duration.ofMillis(value.asLong()));
      case "on_error" -> builder.onError(onError(value.asText()));
      case "max_in_flight" -> builder.maxInFlight(value.asInt());
      case "max_waiting" -> builder.maxWaiting(value.asInt());
      case "known_denials" -> builder.knownDenials(value.asInt());
      case "log_errors" -> builder.logErrors(value.asBoolean());
      case "breaker_failures" -> builder.breaker(value.asInt(), o.breakerPause);
      case "breaker_pause_ms" ->
          builder.breaker(o.breakerFailures, Duration.ofMillis(value.asLong()));
      case "denial_cache" -> builder.denialCache(value.asInt(), o.denialCacheMax);
      case "denial_cache_max_ms" ->
          builder.denialCache(o.denialCache, Duration.ofMillis(value.asLong()));
      default -> throw new AssertionError("the option " + option);
    }
  }

  /** Returns the styles of a list of their words. */
  static List<HeaderStyle> styles(JsonNode words) {
    List<HeaderStyle> styles = new ArrayList<>();
    for (JsonNode word : words) {
      for (HeaderStyle style : HeaderStyle.values()) {
        if (style.word().equals(word.asText())) {
          styles.add(style);
        }
      }
    }
    return styles;
  }

  /** Returns a reply of cases.json as a connection returns it. */
  static Object reply(JsonNode given) {
    if (given.isIntegralNumber()) {
      return given.asLong();
    }
    if (given.isArray()) {
      List<Object> all = new ArrayList<>();
      given.forEach(one -> all.add(reply(one)));
      return all;
    }
    return given.isNull() ? null : given.asText();
  }

  /** Returns a field of a decision as cases.json writes it. */
  static Object field(Decision d, String name) {
    return switch (name) {
      case "allowed" -> d.allowed();
      case "limit" -> d.limit();
      case "remaining" -> d.remaining();
      case "granted" -> d.granted();
      case "retry_after_ms" -> d.retryAfter().toMillis();
      case "reset_after_ms" -> d.resetAfter().toMillis();
      case "never" -> d.never();
      case "banned" -> d.banned();
      case "would_allow" -> d.wouldAllow();
      case "would_retry_after_ms" -> d.wouldRetryAfter().toMillis();
      case "rule" -> d.rule().name();
      case "deciding" -> (long) d.deciding();
      case "source" -> d.source().word();
      case "degraded" -> d.degraded();
      case "reason" -> d.reason() == null ? null : d.reason().word();
      default -> throw new IllegalArgumentException(name);
    };
  }

  /** Converts a value of cases.json to the type that {@link #field} returns. */
  static Object plain(JsonNode value) {
    if (value.isBoolean()) {
      return value.asBoolean();
    }
    return reply(value);
  }
}
