package redisthrottle.gateway;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.bind.BindException;
import org.springframework.cloud.gateway.event.FilterArgsEvent;
import org.springframework.cloud.gateway.filter.ratelimit.AbstractRateLimiter;
import org.springframework.cloud.gateway.filter.ratelimit.KeyResolver;
import org.springframework.cloud.gateway.route.RouteDefinitionRouteLocator;
import org.springframework.cloud.gateway.support.ConfigurationService;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;
import reactor.util.context.ContextView;
import redisthrottle.Count;
import redisthrottle.Decision;
import redisthrottle.HeaderStyle;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Kind;
import redisthrottle.Limiter;
import redisthrottle.OnError;
import redisthrottle.Problem;
import redisthrottle.Rate;
import redisthrottle.Rule;
import redisthrottle.Source;
import redisthrottle.middleware.KeyParts;

/**
 * Limits the routes of a gateway, as the rate limiter of its filter {@code RequestRateLimiter}. The
 * key that the filter's {@code KeyResolver} returns is the subject.
 *
 * <p>A response has the {@code RateLimit} fields, and a denial also {@code Retry-After} and a body
 * of {@code application/problem+json}. A denial that {@link OnError} decided is an {@link
 * UndecidedException} of status 503, one that a retry never changes of status 413, and a ban of
 * status 403. A limit of 0 denies each request without a call. An invalid configuration of a route
 * throws an {@link InvalidArgumentException} when the route is built.
 */
public final class ThrottleRateLimiter extends AbstractRateLimiter<ThrottleRateLimiter.Config> {
  private static final String PROPERTY = "throttle";

  private final Limiter limiter;
  private final Map<String, Rule> rules = new HashMap<>();
  private final Map<String, RouteLimit> limits = new ConcurrentHashMap<>();
  private final Map<String, Config> configs =
      new ConcurrentHashMap<>() {
        @Override
        public Config put(String routeId, Config config) {
          limitOf(routeId, config);
          return super.put(routeId, config);
        }
      };

  /** A limit, and the configuration that it was built from. */
  private record RouteLimit(Config config, Limit limit) {}

  /**
   * Creates a rate limiter.
   *
   * @param limiter decides the calls; it is not closed
   * @param rules the rules that a route may name
   * @param configuration binds the arguments of routes
   */
  public ThrottleRateLimiter(
      Limiter limiter, List<Rule> rules, @Nullable ConfigurationService configuration) {
    super(Config.class, PROPERTY, configuration);
    this.limiter = limiter;
    for (Rule rule : rules) {
      if (this.rules.put(rule.name(), rule) != null) {
        throw invalid("rules", "one with the name " + rule.name());
      }
    }
  }

  /**
   * Returns a resolver of keys that joins the values of headers, such as a tenant's and an API
   * key's. Different values never make the same key. There is no key unless a request has each of
   * the headers exactly once.
   *
   * @throws InvalidArgumentException if there is no name, or if one is no name of a header
   */
  public static KeyResolver keyOf(String... headers) {
    Function<ServerWebExchange, @Nullable String> key =
        KeyParts.ofHeaders(
            (exchange, name) -> exchange.getRequest().getHeaders().getOrEmpty(name), headers);
    return exchange -> Mono.justOrEmpty(key.apply(exchange));
  }

  /** Returns the configurations by the id of their route. Putting a wrong one throws. */
  @Override
  public Map<String, Config> getConfig() {
    return configs;
  }

  @Override
  public void onApplicationEvent(FilterArgsEvent event) {
    try {
      event.getArgs().forEach(Config::check);
      super.onApplicationEvent(event);
    } catch (BindException e) {
      throw invalidArgument(e);
    }
  }

  /** Returns the error of an argument that a setter refused, or that has another type. */
  private static InvalidArgumentException invalidArgument(BindException e) {
    for (Throwable one = e.getCause(); one != null; one = one.getCause()) {
      if (one instanceof InvalidArgumentException known) {
        return known;
      }
    }
    String argument = Config.argumentOf(e.getName().toString());
    return invalid(argument, "a value of " + e.getTarget().getType());
  }

  @Override
  public Mono<Response> isAllowed(String routeId, String id) {
    return Mono.deferContextual(context -> decide(routeId, id, context));
  }

  private Mono<Response> decide(String routeId, String subject, ContextView context) {
    Config own = configs.get(routeId);
    Config config = own == null ? configs.get(RouteDefinitionRouteLocator.DEFAULT_FILTERS) : own;
    if (config == null) {
      throw new IllegalStateException("no limit for the route " + routeId);
    }
    if (!KeyParts.isSubject(subject)) {
      return Mono.error(new UndecidedException(Problem.noSubject(), Map.of()));
    }
    Limit limit = limitOf(routeId, config);
    if (limit.isZero()) {
      return response(limit, limit.zeroDenial(), context);
    }
    // A cancelled request cancels the call.
    return Mono.fromFuture(() -> limiter.checkAsync(limit.item(subject)).toCompletableFuture())
        .flatMap(decision -> response(limit, decision, context));
  }

  private static Mono<Response> response(Limit limit, Decision d, ContextView context) {
    Map<String, String> fields = limit.fields(d);
    if (d.allowed()) {
      return Mono.just(new Response(true, fields));
    }
    if (!limit.isZero() && (d.source() == Source.ERROR || d.never())) {
      return Mono.error(new UndecidedException(d.problem(), fields));
    }
    fields.put("Cache-Control", "no-store");
    DenialBodies.leave(context, limit.isZero() ? limit.zeroProblem() : d.problem());
    return Mono.just(new Response(false, fields));
  }

  /** Returns the limit of a route. A refresh of the routes brings another configuration. */
  private Limit limitOf(String routeId, Config config) {
    RouteLimit built = limits.get(routeId);
    if (built == null || built.config != config) {
      built = new RouteLimit(config, checked(config.limit(ruleOf(routeId, config))));
      limits.put(routeId, built);
    }
    return built.limit;
  }

  private Rule ruleOf(String routeId, Config config) {
    if (config.rule == null) {
      return config.gcra(routeId);
    }
    Rule named = rules.get(config.rule);
    if (named == null) {
      throw invalid("rule", "the name of a bean of type Rule");
    }
    if (config.hasOwnLimit()) {
      throw invalid("rule", "no name, rate, burst, period and onError with it");
    }
    return named;
  }

  private Limit checked(Limit limit) {
    Rule rule = limit.rule();
    limiter.assertDecides(rule);
    if (rule.kind() == Kind.LEASE) {
      throw invalid("rule", "no lease: a gateway's rate limiter does not see the response");
    }
    if (rule.count() != Count.ALL) {
      throw invalid("rule", "no count: a gateway's rate limiter does not see the response");
    }
    boolean hasLimit = rule.takesCost() && rule.limit() > 0 && !limit.isZero();
    if (hasLimit && limit.cost() > rule.limit()) {
      throw invalid("cost", "at most the limit of the rule " + rule.name());
    }
    limit.item("subject");
    return limit;
  }

  static InvalidArgumentException invalid(String argument, String expected) {
    return new InvalidArgumentException(argument, expected);
  }

  static <T> T present(String argument, @Nullable T value) {
    if (value == null) {
      throw invalid(argument, "a value, not null");
    }
    return value;
  }

  /**
   * A route's limit: the rule of a bean by its name, or else {@code burst} units at once and then
   * {@code rate} units per period.
   */
  public static class Config {
    private static final Set<String> OPTIONS =
        Set.of(
            "rule",
            "name",
            "burst",
            "rate",
            "period",
            "cost",
            "onError",
            "headers",
            "springHeaders");

    private @Nullable String rule;
    private @Nullable String name;
    private @Nullable Long burst;
    private @Nullable Long rate;
    private @Nullable Duration periodOfRate;
    private @Nullable Duration period;
    private long cost = 1;
    private @Nullable OnError onError;
    private List<HeaderStyle> headers = List.of(HeaderStyle.DRAFT_11);
    private boolean springHeaders;

    /** Creates a configuration without a limit. */
    public Config() {}

    /** Sets the name of the bean of type {@link Rule} that limits the route. */
    public Config setRule(String rule) {
      this.rule = rule;
      return this;
    }

    /**
     * Sets the name of the limit, which routes may share. The default is the route's id; a route
     * without an id gets another one in each process, so it needs a name.
     */
    public Config setName(String name) {
      this.name = name;
      return this;
    }

    /** Sets the units that are allowed at once. The default is the rate. With 0 none is allowed. */
    public Config setBurst(long burst) {
      this.burst = burst;
      return this;
    }

    /** Sets the units per period. With 0 and no burst none is allowed. */
    public Config setRate(long rate) {
      this.rate = rate;
      periodOfRate = null;
      return this;
    }

    /**
     * Sets the units per period as a number, or as text with the period such as {@code 10/minute}.
     */
    public Config setRate(String text) {
      if (present("rate", text).matches("[0-9]{1,18}")) {
        return setRate(Long.parseLong(text));
      }
      Rate both = Rate.of(text);
      rate = both.rate();
      periodOfRate = both.period();
      return this;
    }

    // The binder of properties calls the setter whose type is that of the getter.
    @Nullable String getRate() {
      return rate == null ? null : Long.toString(rate);
    }

    /** Sets the period of the rate. The default is one second. */
    public Config setPeriod(Duration period) {
      this.period = period;
      return this;
    }

    /** Sets the units that a request takes. The default is 1. */
    public Config setCost(long cost) {
      this.cost = cost;
      return this;
    }

    /** Sets the decision on calls without a final reply. The default is that of the limiter. */
    public Config setOnError(OnError onError) {
      this.onError = onError;
      return this;
    }

    /** Sets the forms of the {@code RateLimit} fields. The default is {@code DRAFT_11}. */
    public Config setHeaders(List<HeaderStyle> headers) {
      present("headers", headers).forEach(style -> present("headers", style));
      this.headers = List.copyOf(headers);
      return this;
    }

    /**
     * Adds the fields of Spring's own limiter: {@code X-RateLimit-Remaining}, which is -1 if {@link
     * OnError} decided, {@code -Burst-Capacity}, {@code -Requested-Tokens} and, with a rate, {@code
     * -Replenish-Rate}, the units per period. The default is false.
     */
    public Config setSpringHeaders(boolean springHeaders) {
      this.springHeaders = springHeaders;
      return this;
    }

    /** Returns true if a rule of a bean would contradict the configuration. */
    boolean hasOwnLimit() {
      return name != null || rate != null || burst != null || period != null || onError != null;
    }

    /** Returns true if the limit is 0. */
    private boolean isZero() {
      return rule == null && (burst == null ? rate != null && rate == 0 : burst == 0);
    }

    /** Returns the rule that the configuration makes; that of a limit of 0 is never checked. */
    Rule gcra(String routeId) {
      if (rate == null || rate < 0) {
        throw invalid("rate", "a number from 0, or a rate such as 10/minute");
      }
      if (rate == 0 && !isZero()) {
        throw invalid("rate", "1 or more, because a burst that never returns is no rate");
      }
      if (periodOfRate != null && period != null) {
        throw invalid("period", "none next to the rate's own");
      }
      Duration given = period == null ? Duration.ofSeconds(1) : period;
      Duration any = periodOfRate == null ? given : periodOfRate;
      String limitName = name == null ? routeId : name;
      long most = isZero() ? 1 : burst == null ? rate : burst;
      Rule gcra = Rule.gcra(limitName, most, Math.max(1, rate), any);
      return onError == null ? gcra : gcra.onError(onError);
    }

    /** Returns the limit of a route with a rule. */
    Limit limit(Rule decides) {
      Limit.SpringFields spring = springHeaders ? new Limit.SpringFields(rate) : null;
      return new Limit(decides, isZero(), cost, headers, spring);
    }

    /**
     * Throws unless an argument of the gateway's filter is one of this limiter or of another, and
     * for a period without a unit, which would be read as milliseconds.
     */
    static void check(String argument, Object value) {
      String prefix = PROPERTY + ".";
      if (!argument.startsWith(prefix)) {
        return;
      }
      String option = argumentOf(argument);
      if (!OPTIONS.contains(option)) {
        throw invalid(argument, "one of " + new TreeSet<>(OPTIONS) + " after " + prefix);
      }
      String text = String.valueOf(value).trim();
      if (option.equals("period") && text.matches("[+-]?[0-9]+")) {
        throw invalid(option, "a duration with its unit, such as " + text + "s");
      }
    }

    /** Returns the option that an argument such as {@code throttle.on-error} sets. */
    static String argumentOf(String argument) {
      String plain = argument.replaceFirst("^" + PROPERTY + "\\.", "").replaceAll("\\[.*", "");
      String bare = plain.replaceAll("[-_]", "");
      return OPTIONS.stream().filter(bare::equalsIgnoreCase).findFirst().orElse(plain);
    }
  }
}
