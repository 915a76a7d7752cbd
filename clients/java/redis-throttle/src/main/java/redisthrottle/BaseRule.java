package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The part that all rules have. */
abstract sealed class BaseRule implements Rule
    permits PlainRule, FixedRule, SlidingLogRule, QuotaRule, PolicyRule {
  final Definition definition;

  /** The words joined by spaces. */
  final String text;

  /** The module's command, such as {@code RL.GCRA}. */
  final String command;

  /** Decides in this process; null if the kind cannot. */
  final @Nullable Algorithm local;

  BaseRule(Definition definition) {
    this.definition = definition;
    this.text = String.join(" ", definition.words());
    this.command = "RL." + definition.words().get(0);
    this.local = Algorithm.of(decider(), definition.localShare());
  }

  /** Returns the algorithm with the rule's whole limit; null if the kind cannot. */
  final @Nullable Algorithm whole() {
    return definition.localShare() == 1 ? local : Algorithm.of(decider(), 1);
  }

  abstract BaseRule with(Definition other);

  @Override
  public final String name() {
    return definition.name();
  }

  @Override
  public final Kind kind() {
    return definition.kind();
  }

  @Override
  public final long limit() {
    return definition.limit();
  }

  @Override
  public final @Nullable Duration window() {
    return definition.window();
  }

  @Override
  public final Count count() {
    return definition.count();
  }

  @Override
  public final boolean takesCost() {
    Kind kind = decider().kind();
    return kind != Kind.LEASE && kind != Kind.BACKOFF;
  }

  @Override
  public final Rule onError(OnError onError) {
    return with(definition.withOnError(Checks.present("onError", onError))).checkedLocal(onError);
  }

  final BaseRule checkedLocal(OnError onError) {
    if (onError == OnError.LOCAL && local == null) {
      throw invalid("onError", "allow or deny: " + name() + " has no local limit");
    }
    return this;
  }

  @Override
  public final Rule localShare(double share) {
    if (!(share > 0 && share <= 1)) {
      throw invalid("localShare", "a number above 0 and at most 1");
    }
    return with(definition.withLocalShare(share));
  }

  @Override
  public final Rule prefetch(int permits) {
    Checks.integer("prefetch", permits, 1, Options.PREFETCH_MAX);
    if (permits > 1 && !isPrefetchable()) {
      throw invalid("prefetch", "1 for " + name() + ", whose permits cannot be kept");
    }
    return with(definition.withPrefetch(permits));
  }

  @Override
  public final Rule count(Count count) {
    if (Checks.present("count", count) != Count.ALL && kind() == Kind.LEASE) {
      throw invalid("count", "Count.ALL for a lease, which ends with the response");
    }
    return with(definition.withCount(count));
  }

  @Override
  public final Item of(String subject) {
    return new Item(this, Checks.present("subject", subject), 1, false, null, null, false);
  }

  /** Returns the default of a policy that has one, otherwise the rule. */
  final BaseRule decider() {
    return definition.fallback() == null ? this : definition.fallback();
  }

  final boolean isPrefetchable() {
    return switch (kind()) {
      case LEASE, BACKOFF, LEAKY_BUCKET, POLICY -> false;
      default -> true;
    };
  }

  /** Returns true if two rules have the same content. A program may make a rule per request. */
  final boolean isSame(BaseRule other) {
    return this == other || name().equals(other.name()) && text.equals(other.text);
  }

  /** Returns the rule's words with the options of a call where the server reads them. */
  final List<String> withOptions(List<String> options) {
    List<String> words = definition.words();
    if (options.isEmpty()) {
      return words;
    }
    int at = words.size();
    if (kind() == Kind.POLICY) {
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
  public final boolean equals(@Nullable Object other) {
    return other instanceof BaseRule rule && definition.equals(rule.definition);
  }

  @Override
  public final int hashCode() {
    return definition.hashCode();
  }

  /** Returns the name, and the rule as the server reads it. */
  @Override
  public final String toString() {
    return name() + ": " + text;
  }
}
