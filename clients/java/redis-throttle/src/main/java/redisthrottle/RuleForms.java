package redisthrottle;

import static redisthrottle.Checks.UNITS_MAX;
import static redisthrottle.Checks.invalid;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Makes the content of rules of their numbers, and validates these. */
final class RuleForms {
  private static final Duration REFILL_MAX = Duration.ofDays(36_525);
  private static final long RATE_MAX = 1_000_000_000;

  private RuleForms() {}

  static Definition bucket(
      Kind kind, String argument, String name, long burst, long rate, @Nullable Duration given) {
    Checks.name("name", name);
    Checks.integer(argument, burst, 1, UNITS_MAX);
    Checks.integer("rate", rate, 1, UNITS_MAX);
    Duration period = Checks.duration("period", given);
    double refillNs = (double) burst * nanos(period) / rate;
    if (refillNs > (double) nanos(REFILL_MAX)) {
      throw invalid(argument, "at most 36525 days to refill from empty");
    }
    if ((double) rate * 1e9 > (double) RATE_MAX * nanos(period)) {
      throw invalid("rate", "at most " + RATE_MAX + " per second");
    }
    List<String> words =
        List.of(word(kind), Long.toString(burst), Long.toString(rate), Checks.word(period));
    Duration refill = Duration.ofNanos((long) Math.ceil(refillNs));
    return Definition.of(kind, name, burst, refill, words).withRate(rate, period);
  }

  static Definition window(Kind kind, String name, long limit, @Nullable Duration given) {
    Checks.name("name", name);
    Checks.integer("limit", limit, 1, UNITS_MAX);
    Duration window = Checks.duration("window", given);
    List<String> words = List.of(word(kind), Long.toString(limit), Checks.word(window));
    return Definition.of(kind, name, limit, window, words);
  }

  static Definition backoff(
      String name, long attempts, Duration base, Duration longest, Duration forget) {
    Checks.name("name", name);
    Checks.integer("attempts", attempts, 1, 1_000_000);
    Checks.duration("base", base);
    Checks.duration("longest", longest);
    Checks.duration("forget", forget);
    if (base.compareTo(longest) > 0) {
      throw invalid("base", "at most the longest delay");
    }
    if (longest.compareTo(forget) >= 0) {
      throw invalid("forget", "more than the longest delay");
    }
    List<String> words =
        List.of(
            "BACKOFF",
            Long.toString(attempts),
            Checks.word(base),
            Checks.word(longest),
            Checks.word(forget));
    return Definition.of(Kind.BACKOFF, name, attempts, null, words);
  }

  static Definition quota(String name, long limit, CalendarUnit unit) {
    Checks.name("name", name);
    Checks.integer("limit", limit, 1, UNITS_MAX);
    Duration window =
        switch (Checks.present("unit", unit)) {
          case DAY -> Duration.ofDays(1);
          case WEEK -> Duration.ofDays(7);
          default -> null;
        };
    List<String> words = List.of("QUOTA", Long.toString(limit), unit.word());
    return Definition.of(Kind.QUOTA, name, limit, window, words);
  }

  static Definition lease(String name, long limit, Duration ttl) {
    Checks.name("name", name);
    Checks.integer("limit", limit, 1, 1_000_000);
    Checks.duration("ttl", ttl);
    List<String> words = List.of("LEASE", Long.toString(limit), Checks.word(ttl));
    return Definition.of(Kind.LEASE, name, limit, null, words).withRate(0, ttl);
  }

  /** Returns the word of a kind in a call. */
  private static String word(Kind kind) {
    return kind.name().replace("_", "");
  }

  /** Returns nanoseconds; up to 292 years fit. */
  private static long nanos(Duration d) {
    return BigDecimal.valueOf(d.getSeconds(), -9).longValueExact() + d.getNano();
  }
}
