package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The content of a rule. */
final class Definition {
  /** The options that every kind of rule has. */
  record Choices(@Nullable OnError onError, double localShare, int prefetch, Count count) {
    static final Choices NONE = new Choices(null, 1, 0, Count.ALL);
  }

  final Kind kind;
  final String name;
  final long limit;
  final @Nullable Duration window;

  /** The words of the rule as the server reads it. They say all but the name and the choices. */
  final List<String> words;

  /** The units that a bucket gains per period; 0 for other rules. */
  final long rate;

  /** The period of a bucket, or the ttl of a lease. */
  final @Nullable Duration period;

  /** The default of a policy. */
  final @Nullable Definition fallback;

  final Choices choices;

  /** The words joined by spaces. */
  final String text;

  /** The module's command, such as {@code RL.GCRA}. */
  final String command;

  /** Decides in this process; null if the kind cannot. */
  final @Nullable Algorithm local;

  private Definition(
      Kind kind,
      String name,
      long limit,
      @Nullable Duration window,
      List<String> words,
      long rate,
      @Nullable Duration period,
      @Nullable Definition fallback,
      Choices choices) {
    this.kind = kind;
    this.name = name;
    this.limit = limit;
    this.window = window;
    this.words = words;
    this.rate = rate;
    this.period = period;
    this.fallback = fallback;
    this.choices = choices;
    this.text = String.join(" ", words);
    this.command = "RL." + words.get(0);
    this.local = share(choices.localShare);
  }

  static Definition of(
      Kind kind, String name, long limit, @Nullable Duration window, List<String> words) {
    return new Definition(kind, name, limit, window, words, 0, null, null, Choices.NONE);
  }

  Definition with(Choices other) {
    return new Definition(kind, name, limit, window, words, rate, period, fallback, other);
  }

  Definition withRate(long units, Duration per) {
    return new Definition(kind, name, limit, window, words, units, per, fallback, choices);
  }

  Definition withWords(List<String> other) {
    return new Definition(kind, name, limit, window, other, rate, period, fallback, choices);
  }

  /** Returns a policy with a default, which is the end of the words. */
  Definition withFallback(List<String> other, Definition rule) {
    return new Definition(kind, name, rule.limit, window, other, rate, period, rule, choices);
  }

  /** Returns the algorithm with the rule's whole limit; null if the kind cannot. */
  @Nullable Algorithm whole() {
    return choices.localShare == 1 ? local : share(1);
  }

  /**
   * Returns the algorithm for a share of the rule. A share below one unit is one unit in a longer
   * time.
   */
  private @Nullable Algorithm share(double share) {
    Definition d = decider();
    double wanted = d.limit * share;
    long limit = Math.max(1, (long) wanted);
    if (d.rate > 0) {
      long nanos = Checks.present("period", d.period).toNanos();
      long unit = (long) Math.ceil((double) nanos / d.rate / share);
      return new Algorithm.Bucket(d.kind == Kind.LEAKY_BUCKET, limit, unit);
    }
    if (d.window == null || d.kind == Kind.QUOTA) {
      return null;
    }
    long window = (long) (d.window.toNanos() / Math.min(1, wanted));
    return switch (d.kind) {
      case FIXED -> new Algorithm.Window(limit, window, d.words.contains("ALIGNED"));
      case SLIDING -> new Algorithm.Sliding(limit, window);
      default -> new Algorithm.Log(limit, window);
    };
  }

  /** Returns the default of a policy that has one, otherwise the rule. */
  Definition decider() {
    return fallback == null ? this : fallback;
  }

  boolean isPrefetchable() {
    return switch (kind) {
      case LEASE, BACKOFF, LEAKY_BUCKET, POLICY -> false;
      default -> true;
    };
  }

  /** Returns false for a lease and a backoff, whose calls all take one unit. */
  boolean takesCost() {
    Kind decides = decider().kind;
    return decides != Kind.LEASE && decides != Kind.BACKOFF;
  }

  /** Throws if the rule cannot decide in this process and has to. */
  void checkLocal(OnError onError) {
    if (onError == OnError.LOCAL && local == null) {
      throw Checks.invalid("onError", "allow or deny: " + name + " has no local limit");
    }
  }

  /** Returns true if two rules have the same content. A program may make a rule per request. */
  boolean isSame(Definition other) {
    return this == other || name.equals(other.name) && text.equals(other.text);
  }

  /** Returns the rule's words with the options of a call where the server reads them. */
  List<String> withOptions(List<String> options) {
    if (options.isEmpty()) {
      return words;
    }
    int at = words.size();
    if (kind == Kind.POLICY) {
      // The words after FOR and DEFAULT belong to the variants and the default.
      at = 2;
    } else if (words.get(at - 1).equals("ALIGNED")) {
      at -= 1;
    } else if (words.get(at - 2).equals("SLOTS")) {
      at -= 2;
    }
    List<String> all = new ArrayList<>(words);
    all.addAll(at, options);
    return all;
  }

  @Override
  public boolean equals(@Nullable Object other) {
    return other instanceof Definition d && isSame(d) && choices.equals(d.choices);
  }

  @Override
  public int hashCode() {
    return text.hashCode() * 31 + name.hashCode();
  }
}
