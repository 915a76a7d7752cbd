package redisthrottle.middleware;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;
import redisthrottle.HeaderStyle;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Limiter;
import redisthrottle.Proxies;
import redisthrottle.Rule;

/**
 * The options of the middlewares of all frameworks.
 *
 * @param <R> the request of the framework
 * @param <B> the builder of the framework
 */
public abstract class MiddlewareBuilder<R, B extends MiddlewareBuilder<R, B>> {
  private static final int RULES_MAX = 16;

  private final RequestLimits.Options<R> options;
  private final Set<String> names = new HashSet<>();

  /**
   * Creates a builder.
   *
   * @param peer returns the address of the peer; null for a Unix socket
   * @param forwarded returns the {@code X-Forwarded-For} fields, in order
   */
  protected MiddlewareBuilder(
      Limiter limiter, Function<R, @Nullable String> peer, Function<R, List<String>> forwarded) {
    options = new RequestLimits.Options<>(present("limiter", limiter), peer, forwarded);
  }

  /** Returns this builder. */
  protected abstract B self();

  /**
   * Adds a rule. Several rules, at most 16, are checked in one call, which takes from all or from
   * none.
   *
   * @throws InvalidArgumentException for a rule that cannot have the limiter's {@code onError}, and
   *     for a repeated name
   */
  public B rule(Rule rule) {
    addKnown(rule);
    return add(new RequestLimits.RuleEntry<>(request -> rule, null));
  }

  /** Adds a rule with its own key, as {@link #rule(Rule)} and {@link #key} do. */
  public B rule(Rule rule, Function<R, @Nullable String> key) {
    addKnown(rule);
    return add(new RequestLimits.RuleEntry<>(request -> rule, present("key", key)));
  }

  /**
   * Adds the rule that a function returns for a request, such as that of a plan. With null the rule
   * does not apply; a request to which no rule applies is not limited.
   */
  public B ruleOf(Function<R, @Nullable Rule> find) {
    return add(new RequestLimits.RuleEntry<>(present("rule", find), null));
  }

  private void addKnown(Rule rule) {
    options.limiter.assertDecides(rule);
    if (!names.add(rule.name())) {
      throw new InvalidArgumentException("rules", "no repeated name");
    }
  }

  private B add(RequestLimits.RuleEntry<R> entry) {
    options.entries.add(entry);
    return self();
  }

  /**
   * Sets the function that returns the subject of a request, such as its API key, or the {@code
   * keyOf} of the framework's filter, which joins several headers. A request whose subject is null,
   * empty or not Unicode gets the status 400, unless there is an {@link #anonymous} rule; the same
   * if the function throws, which is logged. The default is the client's address.
   */
  public B key(Function<R, @Nullable String> key) {
    options.key = present("key", key);
    return self();
  }

  /**
   * Sets the function that returns the units of a request, from 0 to 10^12. The default is 1. Rules
   * that take no cost ignore it. A request with other units gets the status 400; the first is
   * logged.
   */
  public B cost(ToLongFunction<R> cost) {
    options.cost = present("cost", cost);
    return self();
  }

  /** Sets the predicate of the requests that are not limited. */
  public B skip(Predicate<R> skip) {
    options.skip = present("skip", skip);
    return self();
  }

  /**
   * Sets the proxies whose {@code X-Forwarded-For} is believed: addresses and networks such as
   * {@code 10.0.0.0/8}. The default is none; the first such field that arrives is then logged.
   */
  public B trustedProxies(List<String> networks) {
    options.proxies = Proxies.trust(networks);
    options.knowsProxies = true;
    return self();
  }

  /** Sets the forms of the response fields. An empty list leaves only {@code Retry-After}. */
  public B headers(List<HeaderStyle> styles) {
    present("headers", styles).forEach(style -> present("headers", style));
    options.styles = List.copyOf(styles);
    return self();
  }

  /**
   * Sets the rule of requests without a subject. It limits by the client's address, and replaces
   * all other rules.
   */
  public B anonymous(Rule rule) {
    options.limiter.assertDecides(rule);
    options.anonymous = rule;
    return self();
  }

  /**
   * Sets the function that returns the hash tag of all keys of a request, which a cluster needs for
   * several rules. With null the keys have that of the limiter.
   */
  public B tag(Function<R, @Nullable String> tag) {
    options.tag = present("tag", tag);
    return self();
  }

  /**
   * Sets the name of a request header that reports to the application that {@code onError} decided.
   * Its value is then 1. A value from the client is removed.
   */
  public B degradedHeader(String name) {
    if (!KeyParts.isName(name)) {
      throw new InvalidArgumentException("degradedHeader", "the name of a header");
    }
    options.degradedHeader = name;
    return self();
  }

  /**
   * Returns the limits that the options set.
   *
   * @throws InvalidArgumentException if there is no rule, or more than 16
   */
  protected final RequestLimits<R> limits() {
    int rules = options.entries.size();
    if (rules == 0 || rules > RULES_MAX) {
      throw new InvalidArgumentException("rules", "1 to 16 rules");
    }
    return new RequestLimits<>(options.copy());
  }

  /** Returns a value of an option. */
  protected static <T> T present(String argument, @Nullable T value) {
    if (value == null) {
      throw new InvalidArgumentException(argument, "no null");
    }
    return value;
  }
}
