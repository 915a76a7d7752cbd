package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** The part that all rules have. */
abstract sealed class BaseRule implements Rule
    permits PlainRule, FixedRule, SlidingLogRule, QuotaRule, PolicyRule {
  final Definition definition;

  BaseRule(Definition definition) {
    this.definition = definition;
  }

  abstract BaseRule with(Definition other);

  private BaseRule with(Definition.Choices choices) {
    return with(definition.with(choices));
  }

  @Override
  public final String name() {
    return definition.name;
  }

  @Override
  public final Kind kind() {
    return definition.kind;
  }

  @Override
  public final long limit() {
    return definition.limit;
  }

  @Override
  public final @Nullable Duration window() {
    return definition.window;
  }

  @Override
  public final Count count() {
    return definition.choices.count();
  }

  @Override
  public final boolean takesCost() {
    return definition.takesCost();
  }

  @Override
  public final Rule onError(OnError onError) {
    definition.checkLocal(Checks.present("onError", onError));
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(onError, old.localShare(), old.prefetch(), old.count()));
  }

  @Override
  public final Rule localShare(double share) {
    if (!(share > 0 && share <= 1)) {
      throw invalid("localShare", "a number above 0 and at most 1");
    }
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(old.onError(), share, old.prefetch(), old.count()));
  }

  @Override
  public final Rule prefetch(int permits) {
    Checks.integer("prefetch", permits, 1, Checks.PREFETCH_MAX);
    if (permits > 1 && !definition.isPrefetchable()) {
      throw invalid("prefetch", "1 for " + name() + ", whose permits cannot be kept");
    }
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(old.onError(), old.localShare(), permits, old.count()));
  }

  @Override
  public final Rule count(Count count) {
    if (Checks.present("count", count) != Count.ALL && kind() == Kind.LEASE) {
      throw invalid("count", "Count.ALL for a lease, which ends with the response");
    }
    Definition.Choices old = definition.choices;
    return with(new Definition.Choices(old.onError(), old.localShare(), old.prefetch(), count));
  }

  @Override
  public final Item of(String subject) {
    return new Item(this, Checks.present("subject", subject), 1, false, null, null, false);
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
    return name() + ": " + definition.text;
  }
}
