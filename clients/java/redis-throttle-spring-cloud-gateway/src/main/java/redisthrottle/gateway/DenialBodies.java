package redisthrottle.gateway;

import java.nio.charset.StandardCharsets;
import org.jspecify.annotations.Nullable;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.MediaType;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.http.server.reactive.ServerHttpResponseDecorator;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;
import reactor.util.context.ContextView;
import redisthrottle.Problem;

/**
 * Writes the bodies of denials. The gateway's filter completes a denied response without one, and
 * shows its rate limiter neither the exchange nor the response. So the limiter leaves the problem
 * in the context of the request.
 */
final class DenialBodies implements WebFilter {
  /** The problem of a denied request. */
  private static final class Left {
    volatile @Nullable Problem problem;
  }

  /** Leaves the problem of a denied request, whose status the gateway's filter sets. */
  static void leave(ContextView context, Problem problem) {
    context.<Left>getOrEmpty(Left.class).ifPresent(left -> left.problem = problem);
  }

  @Override
  public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
    Left left = new Left();
    ServerHttpResponse plain = exchange.getResponse();
    ServerHttpResponse response =
        new ServerHttpResponseDecorator(plain) {
          @Override
          public Mono<Void> setComplete() {
            Problem problem = left.problem;
            return problem == null || isCommitted()
                ? super.setComplete()
                : write(plain, problem, plain.getStatusCode());
          }
        };
    return chain
        .filter(exchange.mutate().response(response).build())
        .onErrorResume(
            UndecidedException.class,
            error -> plain.isCommitted() ? Mono.error(error) : respond(plain, error))
        .contextWrite(context -> context.put(Left.class, left));
  }

  private static Mono<Void> respond(ServerHttpResponse response, UndecidedException error) {
    response.getHeaders().putAll(error.getHeaders());
    response.setStatusCode(error.getStatusCode());
    return write(response, error.problem(), error.getStatusCode());
  }

  private static Mono<Void> write(
      ServerHttpResponse response, Problem given, @Nullable HttpStatusCode status) {
    // The filter may have another status for denials than 429.
    Problem problem =
        new Problem(
            given.type(),
            given.title(),
            status == null ? given.status() : status.value(),
            given.detail(),
            given.violatedPolicies());
    byte[] body = problem.json().getBytes(StandardCharsets.UTF_8);
    HttpHeaders fields = response.getHeaders();
    fields.setContentType(MediaType.APPLICATION_PROBLEM_JSON);
    // The response to HEAD has it, too.
    fields.setContentLength(body.length);
    return response.writeWith(Mono.fromSupplier(() -> response.bufferFactory().wrap(body)));
  }
}
