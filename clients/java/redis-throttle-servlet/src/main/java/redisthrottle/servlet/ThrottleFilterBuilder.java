package redisthrottle.servlet;

import jakarta.servlet.http.HttpServletRequest;
import java.util.ArrayList;
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

/** The options of a {@link ThrottleFilter}. */
public final class ThrottleFilterBuilder {
  private static final int RULES_MAX = 16;

  final Limiter limiter;
  final List<RuleEntry> entries = new ArrayList<>();
  private final Set<String> names = new HashSet<>();
  @Nullable Function<HttpServletRequest, @Nullable String> key;
  ToLongFunction<HttpServletRequest> cost = request -> 1;
  Predicate<HttpServletRequest> skip = request -> false;
  @Nullable OnDenied onDenied;
  @Nullable OnFailure onFailure;
  Proxies proxies = Proxies.trust(List.of());
  boolean knowsProxies;
  List<HeaderStyle> styles = List.of(HeaderStyle.DRAFT_11);
  @Nullable Rule anonymous;
  Function<HttpServletRequest, @Nullable String> tag = request -> null;
  @Nullable String degradedHeader;

  ThrottleFilterBuilder(Limiter limiter) {
    this.limiter = present("limiter", limiter);
  }

  /** A rule of a filter. Its key is that of the filter if it is null. */
  record RuleEntry(
      Function<HttpServletRequest, @Nullable Rule> find,
      @Nullable Function<HttpServletRequest, @Nullable String> key) {}

  /**
   * Adds a rule. Several rules, at most 16, are checked in one call, which takes from all or from
   * none.
   *
   * @throws InvalidArgumentException for a rule that cannot have the limiter's {@code onError}, and
   *     for a repeated name
   */
  public ThrottleFilterBuilder rule(Rule rule) {
    addKnown(rule);
    return add(new RuleEntry(request -> rule, null));
  }

  /** Adds a rule with its own key, as {@link #rule(Rule)} and {@link #key} do. */
  public ThrottleFilterBuilder rule(Rule rule, Function<HttpServletRequest, @Nullable String> key) {
    addKnown(rule);
    return add(new RuleEntry(request -> rule, present("key", key)));
  }

  /**
   * Adds the rule that a function returns for a request, such as that of a plan. With null the rule
   * does not apply; a request to which no rule applies is not limited.
   */
  public ThrottleFilterBuilder ruleOf(Function<HttpServletRequest, @Nullable Rule> find) {
    return add(new RuleEntry(present("rule", find), null));
  }

  private void addKnown(Rule rule) {
    limiter.assertDecides(rule);
    if (!names.add(rule.name())) {
      throw new InvalidArgumentException("rules", "no repeated name");
    }
  }

  private ThrottleFilterBuilder add(RuleEntry entry) {
    entries.add(entry);
    return this;
  }

  /**
   * Sets the function that returns the subject of a request, such as its API key. A request whose
   * subject is null, empty or not Unicode is answered 400, unless there is an {@link #anonymous}
   * rule; the same if the function throws, which is logged. The default is the client's address.
   */
  public ThrottleFilterBuilder key(Function<HttpServletRequest, @Nullable String> key) {
    this.key = present("key", key);
    return this;
  }

  /**
   * Sets the function that returns the units of a request, from 0 to 10^12. The default is 1. Rules
   * that take no cost ignore it.
   */
  public ThrottleFilterBuilder cost(ToLongFunction<HttpServletRequest> cost) {
    this.cost = present("cost", cost);
    return this;
  }

  /** Sets the predicate of the requests that are not limited. */
  public ThrottleFilterBuilder skip(Predicate<HttpServletRequest> skip) {
    this.skip = present("skip", skip);
    return this;
  }

  /** Sets the function that answers denied requests. The default is a problem+json body. */
  public ThrottleFilterBuilder onDenied(OnDenied onDenied) {
    this.onDenied = present("onDenied", onDenied);
    return this;
  }

  /**
   * Sets the function that answers requests that could not be decided: the server rejected the
   * command, the limiter is closed, the thread was interrupted, or a function returned a wrong
   * value. A server without an answer is no failure: the rule's {@code onError} decides. By default
   * the failure is logged, and the answer has the status 500.
   */
  public ThrottleFilterBuilder onFailure(OnFailure onFailure) {
    this.onFailure = present("onFailure", onFailure);
    return this;
  }

  /**
   * Sets the proxies whose {@code X-Forwarded-For} is believed: addresses and networks such as
   * {@code 10.0.0.0/8}. The default is none; the first such field that arrives is then logged.
   */
  public ThrottleFilterBuilder trustedProxies(List<String> networks) {
    proxies = Proxies.trust(networks);
    knowsProxies = true;
    return this;
  }

  /** Sets the forms of the response fields. An empty list leaves only {@code Retry-After}. */
  public ThrottleFilterBuilder headers(List<HeaderStyle> styles) {
    this.styles = List.copyOf(present("headers", styles));
    return this;
  }

  /**
   * Sets the rule of requests without a subject. It limits by the client's address, and replaces
   * all other rules.
   */
  public ThrottleFilterBuilder anonymous(Rule rule) {
    limiter.assertDecides(rule);
    anonymous = rule;
    return this;
  }

  /**
   * Sets the function that returns the hash tag of all keys of a request, which a cluster needs for
   * several rules. With null the keys have that of the limiter.
   */
  public ThrottleFilterBuilder tag(Function<HttpServletRequest, @Nullable String> tag) {
    this.tag = present("tag", tag);
    return this;
  }

  /**
   * Sets the name of a request header that tells the application that {@code onError} decided. Its
   * value is then 1. A value from the client is removed.
   */
  public ThrottleFilterBuilder degradedHeader(String name) {
    if (!present("degradedHeader", name).matches("[A-Za-z0-9!#$%&'*+.^_`|~-]+")) {
      throw new InvalidArgumentException("degradedHeader", "the name of a header");
    }
    degradedHeader = name;
    return this;
  }

  /**
   * Makes the filter.
   *
   * @throws InvalidArgumentException if there is no rule, or more than 16
   */
  public ThrottleFilter build() {
    if (entries.isEmpty() || entries.size() > RULES_MAX) {
      throw new InvalidArgumentException("rules", "1 to 16 rules");
    }
    return new ThrottleFilter(this);
  }

  private static <T> T present(String argument, @Nullable T value) {
    if (value == null) {
      throw new InvalidArgumentException(argument, "no null");
    }
    return value;
  }
}
