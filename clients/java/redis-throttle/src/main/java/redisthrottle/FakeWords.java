package redisthrottle;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Reads the words of a rule, as the fake server gets them. */
final class FakeWords {
  private FakeWords() {}

  static ServerErrorException error(String text) {
    return new ServerErrorException("ERR " + text, null);
  }

  /** Returns the ask of a rule's words, the first of which is the algorithm. */
  static Ask ask(String key, List<String> given) {
    List<String> words = new ArrayList<>();
    long cost = 1;
    boolean isPartial = false;
    String leave = null;
    for (int at = 0; at < given.size(); at++) {
      switch (given.get(at)) {
        case "COST" -> cost = Long.parseLong(given.get(++at));
        case "PARTIAL" -> isPartial = true;
        case "LEAVE" -> leave = given.get(++at);
        default -> words.add(given.get(at));
      }
    }
    String id = words.get(0).equals("LEASE") ? words.remove(1) : "";
    int fallback = words.indexOf("DEFAULT");
    List<String> deciding = fallback < 0 ? words : words.subList(fallback + 1, words.size());
    BaseRule rule = rule(deciding);
    return new Ask(rule, key, key, cost, isPartial, leave, id, null);
  }

  private static BaseRule rule(List<String> words) {
    String name = "fake";
    Rule rule =
        switch (words.get(0)) {
          case "GCRA" -> Rule.gcra(name, units(words, 1), units(words, 2), duration(words, 3));
          case "TOKENBUCKET" ->
              Rule.tokenBucket(name, units(words, 1), units(words, 2), duration(words, 3));
          case "LEAKYBUCKET" ->
              Rule.leakyBucket(name, units(words, 1), units(words, 2), duration(words, 3));
          case "FIXED" -> {
            FixedRule fixed = Rule.fixed(name, units(words, 1), duration(words, 2));
            yield words.contains("ALIGNED") ? fixed.aligned() : fixed;
          }
          case "SLIDING" -> Rule.sliding(name, units(words, 1), duration(words, 2));
          case "SLIDINGLOG" -> Rule.slidingLog(name, units(words, 1), duration(words, 2));
          case "LEASE" -> Rule.lease(name, units(words, 1), duration(words, 2));
          default -> throw error("the fake server has no " + words.get(0));
        };
    return (BaseRule) rule;
  }

  private static long units(List<String> words, int at) {
    return Long.parseLong(words.get(at));
  }

  private static Duration duration(List<String> words, int at) {
    return duration(words.get(at));
  }

  static Duration duration(String word) {
    if (!word.endsWith("ms")) {
      return Duration.ofSeconds(Long.parseLong(word));
    }
    BigDecimal ms = new BigDecimal(word.substring(0, word.length() - 2));
    return Duration.ofNanos(ms.movePointRight(6).longValue());
  }
}
