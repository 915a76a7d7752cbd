package redisthrottle;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The part of a command for one rule, as the fake server reads it. Times are nanoseconds. */
final class FakeRule {
  private static final long UNITS_MAX = 1_000_000_000_000L;

  /** The server's setting for sliding logs without SLOTS. */
  private static final long SLOTS = 1024;

  private final List<String> words;
  private int at;

  /** The first word of the rule. The state of a key belongs to one. */
  String word = "";

  /** Null for a lease. */
  @Nullable Algorithm algorithm;

  long cost = 1;
  boolean hasCost;
  boolean isPartial;
  @Nullable String leave;

  /** True for the default of a policy, whose replies have seven integers. */
  boolean isPolicy;

  /** The id and the ttl of a reservation or of a lease. */
  String id = "";

  long ttl;

  /** The limit of a lease; 0 for other rules. */
  long permits;

  private FakeRule(List<String> words) {
    this.words = words;
  }

  static ServerErrorException error(String text) {
    return new ServerErrorException("ERR " + text, null);
  }

  private static ServerErrorException invalid() {
    return error("invalid rule: expected one that a limiter sends");
  }

  /** Returns the rule of some words. */
  static FakeRule of(List<String> given) {
    FakeRule head = new FakeRule(given);
    boolean reserves = !given.isEmpty() && given.get(0).equals("RESERVE");
    String id = "";
    long ttl = 0;
    if (reserves) {
      head.next();
      id = head.next();
      ttl = head.nanos();
    }
    List<String> rest = given.subList(head.at, given.size());
    int other = rest.indexOf("DEFAULT");
    List<String> plain = other < 0 ? rest : rest.subList(0, other);
    FakeRule options = new FakeRule(plain);
    List<String> words = options.takeOptions();
    boolean isPolicy = !words.isEmpty() && words.get(0).equals("USE");
    if (isPolicy && other < 0) {
      throw new ServerErrorException("NOPOLICY no such policy", null);
    }
    FakeRule rule = new FakeRule(isPolicy ? rest.subList(other + 1, rest.size()) : words);
    rule.cost = options.cost;
    rule.hasCost = options.hasCost;
    rule.isPartial = options.isPartial;
    rule.leave = options.leave;
    rule.isPolicy = isPolicy;
    rule.id = id;
    rule.ttl = ttl;
    rule.word = rule.next();
    rule.takeAlgorithm();
    if (reserves) {
      rule.window();
    }
    return rule;
  }

  /** Reads a duration. */
  static long nanos(String word) {
    boolean isMs = word.endsWith("ms");
    try {
      BigDecimal number = new BigDecimal(isMs ? word.substring(0, word.length() - 2) : word);
      long nanos = number.movePointRight(isMs ? 6 : 9).longValueExact();
      if (nanos >= 1_000_000) {
        return nanos;
      }
    } catch (ArithmeticException | NumberFormatException e) {
      // Not a duration.
    }
    throw invalid();
  }

  private String next() {
    if (at == words.size()) {
      throw invalid();
    }
    return words.get(at++);
  }

  private boolean isAtEnd() {
    return at == words.size();
  }

  private long nanos() {
    return nanos(next());
  }

  private long units(long least) {
    try {
      long units = Long.parseLong(next());
      if (units >= least && units <= UNITS_MAX) {
        return units;
      }
    } catch (NumberFormatException e) {
      // Not a number.
    }
    throw invalid();
  }

  /** Reads the options among the words, and returns the other words. */
  private List<String> takeOptions() {
    List<String> rest = new ArrayList<>();
    while (!isAtEnd()) {
      String word = next();
      switch (word) {
        case "PARTIAL" -> isPartial = true;
        case "LEAVE" -> leave = next();
        case "COST" -> {
          cost = units(0);
          hasCost = true;
        }
        default -> rest.add(word);
      }
    }
    return rest;
  }

  private void takeAlgorithm() {
    switch (word) {
      case "GCRA", "TOKENBUCKET", "LEAKYBUCKET" -> algorithm = bucket();
      case "FIXED" -> {
        long limit = units(1);
        algorithm = FakeWindow.fixed(limit, nanos(), !isAtEnd() && next().equals("ALIGNED"));
      }
      case "SLIDING" -> algorithm = sliding();
      case "SLIDINGLOG" -> algorithm = log();
      case "QUOTA" -> {
        long limit = units(1);
        algorithm = FakeWindow.quota(limit, next());
        if (!isAtEnd()) {
          throw error("the fake server does not know ZONE and START");
        }
      }
      case "BACKOFF" -> algorithm = new FakeBackoff(units(1), nanos(), nanos(), nanos());
      case "LEASE" -> {
        id = next();
        permits = units(1);
        ttl = nanos();
      }
      default -> throw error("the fake server does not know " + word);
    }
  }

  /**
   * Returns a bucket. A unit of GCRA is a whole number of nanoseconds. The others count parts of a
   * unit, unless those do not fit in 64 bits.
   */
  private Algorithm bucket() {
    long limit = units(1);
    long rate = units(1);
    long period = nanos();
    long divisor = BigInteger.valueOf(period).gcd(BigInteger.valueOf(rate)).longValue();
    long unit = period / divisor;
    boolean isQueue = word.equals("LEAKYBUCKET");
    if (!word.equals("GCRA") && unit <= Long.MAX_VALUE / 4 / limit) {
      return new Algorithm.Bucket(isQueue, limit, unit, rate / divisor);
    }
    return new Algorithm.Bucket(isQueue, limit, (period + rate - 1) / rate, 1);
  }

  private Algorithm sliding() {
    long limit = units(1);
    long window = nanos();
    // The largest number of ticks at which units times ticks fit in 64 bits.
    long tick = 1000;
    while (limit > Long.MAX_VALUE / 8 / (window / tick)) {
      tick *= 2;
    }
    return new Algorithm.Sliding(limit, window, tick);
  }

  private Algorithm log() {
    long limit = units(1);
    long window = nanos();
    long slots = !isAtEnd() && next().equals("SLOTS") ? units(1) : SLOTS;
    long slot = limit > slots ? (window / 1000 + slots - 1) / slots * 1000 : 1;
    return new Algorithm.Log(limit, window, slot);
  }

  /** Returns the algorithm. */
  Algorithm decider() {
    if (algorithm == null) {
      throw FakeKeys.wrongType();
    }
    return algorithm;
  }

  /** Returns the window of a rule that can reserve. */
  FakeWindow window() {
    if (algorithm instanceof FakeWindow window) {
      return window;
    }
    throw error(
        isPolicy
            ? "invalid policy: expected a rule of FIXED or QUOTA, which allow reservations"
            : "invalid algorithm: expected FIXED or QUOTA, which allow reservations, or USE");
  }

  long limit() {
    return permits > 0 ? permits : decider().decide(null, 0, 0).limit();
  }

  /** Returns the units that a call leaves to others. */
  long left() {
    try {
      return Local.unitsLeft(leave, limit());
    } catch (NumberFormatException e) {
      throw invalid();
    }
  }
}
