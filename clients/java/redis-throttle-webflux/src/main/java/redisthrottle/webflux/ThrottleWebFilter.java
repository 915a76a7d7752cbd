package redisthrottle.webflux;

import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.MediaType;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;
import reactor.core.publisher.SignalType;
import redisthrottle.Decision;
import redisthrottle.DeniedException;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Problem;
import redisthrottle.middleware.ClientGone;
import redisthrottle.middleware.KeyParts;
import redisthrottle.middleware.NoSubjectException;
import redisthrottle.middleware.RequestLimits;
import redisthrottle.middleware.TakenItems;

/**
 * A filter that limits requests. A request over the limit gets a response of status 429, with
 * {@code Retry-After} and a body of {@code application/problem+json}. The filter responds in the
 * same way to a {@link DeniedException} that the application throws before the response is
 * committed.
 *
 * <p>Leases are released when the chain ends: it completes, fails, or is cancelled, as when the
 * client is gone. A permit that arrives after a cancellation is given back. What a response took
 * that does not count, by the rule's {@link redisthrottle.Count}, is given back when its head is
 * sent. A request whose client is gone, or has cut its body, before counts, and the predicate of
 * its rule is not called.
 *
 * <p>No thread waits for the limiter. The chain continues on the executor of the limiter, see
 * {@link redisthrottle.LimiterBuilder#executor}.
 */
public final class ThrottleWebFilter implements WebFilter {
  private static final System.Logger LOG = System.getLogger("redisthrottle.webflux");
  private static final String DECISION = "redisthrottle.decision";
  private static final String CLEANED = "redisthrottle.cleaned.";

  private final RequestLimits<ServerWebExchange> limits;
  private final @Nullable OnDenied onDenied;
  private final @Nullable OnFailure onFailure;

  ThrottleWebFilter(ThrottleWebFilterBuilder options, RequestLimits<ServerWebExchange> limits) {
    this.limits = limits;
    onDenied = options.onDenied;
    onFailure = options.onFailure;
  }

  /** Returns the options of a new filter. The subject is the client's address by default. */
  public static ThrottleWebFilterBuilder builder(Limiter limiter) {
    return new ThrottleWebFilterBuilder(limiter);
  }

  /**
   * Returns a key function for {@link ThrottleWebFilterBuilder#key} that joins the values of
   * headers, such as a tenant's and an API key's. Different values never make the same subject. A
   * request has no subject unless it has each of the headers exactly once.
   *
   * @throws InvalidArgumentException if there is no name, or if one is no name of a header
   */
  public static Function<ServerWebExchange, @Nullable String> keyOf(String... headers) {
    return KeyParts.ofHeaders(
        (exchange, name) -> exchange.getRequest().getHeaders().getOrEmpty(name), headers);
  }

  /** Returns the decision on a request; null if it was not limited. */
  public static @Nullable Decision decisionOf(ServerWebExchange exchange) {
    return exchange.getAttribute(DECISION);
  }

  @Override
  public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
    return Mono.defer(() -> limit(exchange, chain));
  }

  private Mono<Void> limit(ServerWebExchange exchange, WebFilterChain chain) {
    CompletableFuture<TakenItems> taking;
    try {
      List<Item> items = limits.items(exchange);
      if (items == null) {
        return write(exchange.getResponse(), Problem.noSubject());
      }
      taking = items.isEmpty() ? null : limits.takeAsync(exchange, items);
    } catch (NoSubjectException e) {
      return write(exchange.getResponse(), Problem.noSubject());
    } catch (RuntimeException e) {
      return fail(exchange, e);
    }
    if (taking == null) {
      return run(mark(exchange, null), chain);
    }
    return Mono.fromFuture(
            taking.handle(
                (taken, error) ->
                    error == null ? decided(exchange, chain, taken) : fail(exchange, error)))
        .flatMap(Function.identity())
        .doFinally(end -> end(taking, end));
  }

  /** Ends what a request took. The cancelled one may have it, get it later, or never. */
  private static void end(CompletableFuture<TakenItems> taking, SignalType end) {
    taking.cancel(false);
    taking.thenAccept(
        taken -> {
          if (end == SignalType.CANCEL) {
            taken.keep();
          }
          taken.release();
        });
  }

  private Mono<Void> decided(ServerWebExchange exchange, WebFilterChain chain, TakenItems taken) {
    return Mono.defer(
        () -> {
          if (!taken.decision().allowed()) {
            return deny(exchange, taken.decision());
          }
          addFields(exchange.getResponse(), taken.decision());
          return admit(exchange, chain, taken);
        });
  }

  /** Runs the application, and responds to a denial that it throws. */
  private Mono<Void> run(ServerWebExchange exchange, WebFilterChain chain) {
    return chain
        .filter(exchange)
        .onErrorResume(
            error -> {
              DeniedException denied = DeniedException.in(error);
              return denied == null || exchange.getResponse().isCommitted()
                  ? Mono.error(error)
                  : deny(exchange, denied.decision());
            });
  }

  private Mono<Void> admit(ServerWebExchange exchange, WebFilterChain chain, TakenItems taken) {
    exchange.getAttributes().put(DECISION, taken.decision());
    ServerHttpResponse response = exchange.getResponse();
    response.beforeCommit(() -> Mono.fromRunnable(() -> taken.giveBack(status(response))));
    return run(mark(watched(exchange, taken), taken.decision()), chain)
        .doOnError(ClientGone::isReportedBy, error -> taken.keep());
  }

  private static ServerWebExchange watched(ServerWebExchange exchange, TakenItems taken) {
    return taken.needsWatch() ? new WatchedExchange(exchange, taken) : exchange;
  }

  private static int status(ServerHttpResponse response) {
    HttpStatusCode status = response.getStatusCode();
    return status == null ? 200 : status.value();
  }

  private Mono<Void> fail(ServerWebExchange exchange, Throwable error) {
    if (!(error instanceof RuntimeException failure)) {
      return Mono.error(error);
    }
    return Mono.defer(
        () -> {
          if (onFailure != null) {
            return onFailure.answer(exchange, failure);
          }
          LOG.log(
              Level.ERROR, "redis-throttle: a request could not be decided: " + failure, failure);
          return write(exchange.getResponse(), Problem.undecided());
        });
  }

  private Mono<Void> deny(ServerWebExchange exchange, Decision decision) {
    addFields(exchange.getResponse(), decision);
    if (onDenied == null) {
      return write(exchange.getResponse(), decision.problem());
    }
    exchange.getResponse().getHeaders().setCacheControl("no-store");
    return onDenied.answer(exchange, decision);
  }

  private void addFields(ServerHttpResponse response, Decision decision) {
    HttpHeaders fields = response.getHeaders();
    limits.writeFields(decision, fields::add, fields::set);
  }

  private static Mono<Void> write(ServerHttpResponse response, Problem problem) {
    byte[] body = problem.json().getBytes(StandardCharsets.UTF_8);
    response.setStatusCode(HttpStatusCode.valueOf(problem.status()));
    HttpHeaders fields = response.getHeaders();
    fields.setContentType(MediaType.APPLICATION_PROBLEM_JSON);
    fields.setCacheControl("no-store");
    // The response to HEAD has it, too.
    fields.setContentLength(body.length);
    return response.writeWith(Mono.fromSupplier(() -> response.bufferFactory().wrap(body)));
  }

  /** Returns the exchange for the application. The mark of an outer filter stays. */
  private ServerWebExchange mark(ServerWebExchange exchange, @Nullable Decision decision) {
    String name = limits.degradedHeader();
    if (name == null) {
      return exchange;
    }
    String cleaned = CLEANED + name.toLowerCase(Locale.ROOT);
    boolean isCleaned = exchange.getAttributes().put(cleaned, true) != null;
    boolean isDegraded = decision != null && decision.degraded();
    if (isCleaned && !isDegraded) {
      return exchange;
    }
    return exchange
        .mutate()
        .request(
            request ->
                request.headers(
                    fields -> {
                      fields.remove(name);
                      if (isDegraded) {
                        fields.set(name, "1");
                      }
                    }))
        .build();
  }
}
