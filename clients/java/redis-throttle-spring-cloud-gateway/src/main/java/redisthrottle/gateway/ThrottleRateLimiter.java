package redisthrottle.gateway;

import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.cloud.gateway.event.FilterArgsEvent;
import org.springframework.cloud.gateway.filter.ratelimit.AbstractRateLimiter;
import org.springframework.cloud.gateway.filter.ratelimit.KeyResolver;
import org.springframework.cloud.gateway.route.RouteDefinitionRouteLocator;
import org.springframework.cloud.gateway.support.ConfigurationService;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;
import redisthrottle.Count;
import redisthrottle.Decision;
import redisthrottle.HeaderStyle;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Item;
import redisthrottle.Kind;
import redisthrottle.Limiter;
import redisthrottle.OnError;
import redisthrottle.Problem;
import redisthrottle.Rule;
import redisthrottle.Source;
import redisthrottle.middleware.KeyParts;

/**
 * Limits the routes of a gateway, as the rate limiter of its filter {@code RequestRateLimiter}. The
 * key that the filter's {@code KeyResolver} returns is the subject.
 *
 * <p>A response has the {@code RateLimit} fields, and a denial also {@code Retry-After}. A denial
 * that {@link OnError} decided is an {@link UndecidedException} of status 503, one that a retry
 * never changes of status 413, and a ban of status 403. A mistake in the configuration of a route
 * is an {@link InvalidArgumentException} when the route is built.
 */
public final class ThrottleRateLimiter extends AbstractRateLimiter<ThrottleRateLimiter.Config> {
  private static final String PROPERTY = "throttle";

  private final Limiter limiter;
  private final Map<String, Rule> rules = new HashMap<>();
  private final Map<String, Limit> limits = new ConcurrentHashMap<>();

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
   * Returns a resolver of keys that joins the first values of headers, such as a tenant's and an
   * API key's. Different values never make the same key. Without one of the headers the key is
   * empty.
   *
   * @throws InvalidArgumentException if there is no name, or if one is no name of a header
   */
  public static KeyResolver keyOf(String... headers) {
    Function<ServerWebExchange, @Nullable String> key =
        KeyParts.ofHeaders(
            (exchange, name) -> exchange.getRequest().getHeaders().getFirst(name), headers);
    return exchange -> Mono.justOrEmpty(key.apply(exchange));
  }

  @Override
  public void onApplicationEvent(FilterArgsEvent event) {
    super.onApplicationEvent(event);
    Config config = getConfig().get(event.getRouteId());
    if (config != null) {
      limitOf(event.getRouteId(), config);
    }
  }

  @Override
  public Mono<Response> isAllowed(String routeId, String id) {
    return Mono.defer(() -> decide(routeId, id));
  }

  private Mono<Response> decide(String routeId, String subject) {
    if (subject.isEmpty()) {
      return Mono.error(UndecidedException.of(Problem.noSubject()));
    }
    Map<String, Config> all = getConfig();
    Config own = all.get(routeId);
    Config config = own == null ? all.get(RouteDefinitionRouteLocator.DEFAULT_FILTERS) : own;
    if (config == null) {
      throw new IllegalStateException("no limit for the route " + routeId);
    }
    Limit limit = limitOf(routeId, config);
    // A cancelled request cancels the call.
    return Mono.fromFuture(() -> limiter.checkAsync(limit.item(subject)).toCompletableFuture())
        .flatMap(decision -> response(limit, decision));
  }

  private static Mono<Response> response(Limit limit, Decision d) {
    if (!d.allowed() && (d.source() == Source.ERROR || d.never())) {
      return Mono.error(UndecidedException.of(d));
    }
    Map<String, String> fields = new HashMap<>(d.headers(limit.config().headers, Instant.now()));
    if (!d.allowed()) {
      fields.put("Cache-Control", "no-store");
    }
    return Mono.just(new Response(d.allowed(), fields));
  }

  /** Returns the limit of a route. A refresh of the routes brings another configuration. */
  private Limit limitOf(String routeId, Config config) {
    Limit made = limits.get(routeId);
    if (made == null || made.config() != config) {
      made = new Limit(config, checked(config, ruleOf(routeId, config)));
      limits.put(routeId, made);
    }
    return made;
  }

  private Rule ruleOf(String routeId, Config config) {
    if (config.rule != null) {
      Rule named = rules.get(config.rule);
      if (named == null) {
        throw invalid("rule", "the name of a bean of type Rule");
      }
      if (config.name != null || config.rate != 0 || config.burst != 0 || config.onError != null) {
        throw invalid("rule", "no name, rate, burst and onError with it");
      }
      return named;
    }
    long burst = config.burst == 0 ? config.rate : config.burst;
    String name = config.name == null ? routeId : config.name;
    Rule rule = Rule.gcra(name, burst, config.rate, config.period);
    return config.onError == null ? rule : rule.onError(config.onError);
  }

  private Rule checked(Config config, Rule rule) {
    limiter.assertDecides(rule);
    if (rule.kind() == Kind.LEASE) {
      throw invalid("rule", "no lease: a gateway's rate limiter does not see the response");
    }
    if (rule.count() != Count.ALL) {
      throw invalid("rule", "no count: a gateway's rate limiter does not see the response");
    }
    if (rule.takesCost() && rule.limit() > 0 && config.cost > rule.limit()) {
      throw invalid("cost", "at most the limit of the rule " + rule.name());
    }
    new Limit(config, rule).item("subject");
    return rule;
  }

  private static InvalidArgumentException invalid(String argument, String expected) {
    return new InvalidArgumentException(argument, expected);
  }

  private record Limit(Config config, Rule rule) {
    Item item(String subject) {
      Item item = rule.of(subject);
      return config.cost == 1 ? item : item.cost(config.cost);
    }
  }

  /**
   * A route's limit: the rule of a bean by its name, or else {@code burst} units at once and then
   * {@code rate} units per period.
   */
  public static class Config {
    private @Nullable String rule;
    private @Nullable String name;
    private long burst;
    private long rate;
    private Duration period = Duration.ofSeconds(1);
    private long cost = 1;
    private @Nullable OnError onError;
    private List<HeaderStyle> headers = List.of(HeaderStyle.DRAFT_11);

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

    /** Sets the units that are allowed at once. The default is the rate. */
    public Config setBurst(long burst) {
      this.burst = burst;
      return this;
    }

    /** Sets the units per period. */
    public Config setRate(long rate) {
      this.rate = rate;
      return this;
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

    /** Sets the decision on calls without an answer. The default is that of the limiter. */
    public Config setOnError(OnError onError) {
      this.onError = onError;
      return this;
    }

    /** Sets the forms of the {@code RateLimit} fields. The default is {@code DRAFT_11}. */
    public Config setHeaders(List<HeaderStyle> headers) {
      this.headers = List.copyOf(headers);
      return this;
    }
  }
}
