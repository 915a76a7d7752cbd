package redisthrottle.spring;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;
import redisthrottle.CalendarUnit;
import redisthrottle.FixedRule;
import redisthrottle.Kind;
import redisthrottle.PolicyRule;
import redisthrottle.QuotaRule;
import redisthrottle.Rate;
import redisthrottle.Rule;
import redisthrottle.SlidingLogRule;

/** Makes a rule of its properties. */
final class RuleForm {
  private final String prefix;
  private final String name;
  private final Kind kind;
  private final RuleProperties given;
  private final Map<String, Object> arguments;
  private final Function<String, Rule> others;

  /**
   * Makes the form of a rule.
   *
   * @param others returns another rule, for the fallback of a policy
   */
  RuleForm(String name, RuleProperties given, Function<String, Rule> others) {
    this.prefix = "throttle.rules." + name;
    this.name = name;
    this.given = given;
    this.others = others;
    this.arguments = given.arguments();
    read("rate", "period");
    read("limit", "window");
    if (given.algorithm() == null) {
      throw new PropertyException(prefix + ".algorithm", "missing, such as gcra");
    }
    this.kind = given.algorithm();
  }

  /** Reads a number, or a rate such as 10/minute in place of a number and a duration. */
  private void read(String number, String duration) {
    Object text = arguments.get(number);
    if (text == null) {
      return;
    }
    if (text.toString().matches("[+-]?[0-9]{1,18}")) {
      arguments.put(number, Long.valueOf(text.toString()));
      return;
    }
    Rate rate = PropertyException.in(prefix + "." + number, () -> Rate.of(text.toString()));
    if (arguments.put(duration, rate.period()) != null) {
      throw new PropertyException(
          prefix + "." + duration, "not beside the " + number + " " + text + ", which has its own");
    }
    arguments.put(number, rate.rate());
  }

  Rule rule() {
    return PropertyException.below(prefix, () -> withOptions(plain()));
  }

  private Rule plain() {
    switch (kind) {
      case GCRA, TOKEN_BUCKET, LEAKY_BUCKET -> {
        return bucket();
      }
      case FIXED -> {
        takes(List.of("limit", "window"), List.of("aligned"));
        FixedRule rule = Rule.fixed(name, number("limit"), duration("window"));
        return Boolean.TRUE.equals(given.aligned()) ? rule.aligned() : rule;
      }
      case SLIDING -> {
        takes(List.of("limit", "window"), List.of());
        return Rule.sliding(name, number("limit"), duration("window"));
      }
      case SLIDING_LOG -> {
        takes(List.of("limit", "window"), List.of("slots"));
        SlidingLogRule rule = Rule.slidingLog(name, number("limit"), duration("window"));
        return with(rule, given.slots(), rule::slots);
      }
      case BACKOFF -> {
        takes(List.of("attempts", "base", "longest", "forget"), List.of());
        return Rule.backoff(
            name, number("attempts"), duration("base"), duration("longest"), duration("forget"));
      }
      case QUOTA -> {
        return quota();
      }
      case LEASE -> {
        takes(List.of("limit", "ttl"), List.of());
        return Rule.lease(name, number("limit"), duration("ttl"));
      }
      default -> {
        return policy();
      }
    }
  }

  private Rule bucket() {
    String size = kind == Kind.GCRA ? "burst" : "capacity";
    takes(List.of(size, "rate", "period"), List.of());
    return switch (kind) {
      case GCRA -> Rule.gcra(name, number(size), number("rate"), duration("period"));
      case TOKEN_BUCKET -> Rule.tokenBucket(name, number(size), number("rate"), duration("period"));
      default -> Rule.leakyBucket(name, number(size), number("rate"), duration("period"));
    };
  }

  private Rule quota() {
    takes(List.of("limit", "unit"), List.of("zone", "start"));
    QuotaRule rule = Rule.quota(name, number("limit"), (CalendarUnit) arguments.get("unit"));
    rule = given.zone() == null ? rule : rule.zone(given.zone());
    return given.start() == null ? rule : rule.start(given.start());
  }

  private Rule policy() {
    takes(List.of(), List.of("variants", "fallback"));
    PolicyRule rule = Rule.policy(name);
    if (given.variants() != null) {
      rule = rule.variants(given.variants().toArray(String[]::new));
    }
    return given.fallback() == null ? rule : rule.fallback(others.apply(given.fallback()));
  }

  private Rule withOptions(Rule plain) {
    Rule rule = with(plain, given.localShare(), plain::localShare);
    rule = with(rule, given.onError(), rule::onError);
    rule = with(rule, given.prefetch(), rule::prefetch);
    return given.counts() == null ? rule : rule.count(given.counts().count);
  }

  private static <T> Rule with(Rule rule, @Nullable T value, Function<T, ? extends Rule> set) {
    return value == null ? rule : set.apply(value);
  }

  /** Throws unless all arguments that the algorithm needs are there, and no others. */
  private void takes(List<String> needed, List<String> optional) {
    List<String> all = new ArrayList<>(needed);
    all.addAll(optional);
    UnaryOperator<String> says =
        problem ->
            problem
                + kind.word().replace('_', '-')
                + " takes "
                + String.join(", ", all)
                + textOf(all);
    for (String argument : needed) {
      if (!arguments.containsKey(argument)) {
        throw new PropertyException(prefix + "." + argument, says.apply("missing: "));
      }
    }
    for (String argument : arguments.keySet()) {
      if (!all.contains(argument)) {
        String property = prefix + "." + argument;
        throw new PropertyException(property, says.apply("not of this algorithm: "));
      }
    }
  }

  /** Returns advice if the rate is text, but in the property of another algorithm. */
  private String textOf(List<String> taken) {
    boolean isLimit = taken.contains("window");
    String text = isLimit ? given.rate() : given.limit();
    boolean isText = text != null && text.matches("[0-9]+[ /].*");
    return isText && (isLimit || taken.contains("rate"))
        ? "; write " + (isLimit ? "limit" : "rate") + ": " + text
        : "";
  }

  private long number(String argument) {
    return ((Number) arguments.get(argument)).longValue();
  }

  private Duration duration(String argument) {
    return (Duration) arguments.get(argument);
  }
}
