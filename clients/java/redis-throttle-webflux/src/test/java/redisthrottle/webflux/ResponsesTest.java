package redisthrottle.webflux;

import java.net.http.HttpResponse;
import java.util.function.Function;
import org.springframework.http.HttpStatusCode;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Mono;
import redisthrottle.Limiter;
import redisthrottle.ResponseCases;

/** Runs the shared responses through the filter in Netty. */
class ResponsesTest extends ResponseCases<ServerWebExchange, ThrottleWebFilterBuilder> {
  private static Mono<Void> respond(ServerWebExchange exchange, int status) {
    exchange.getResponse().setStatusCode(HttpStatusCode.valueOf(status));
    return exchange.getResponse().setComplete();
  }

  @Override
  protected ThrottleWebFilterBuilder builder(Limiter limiter, Integer onDenied) {
    ThrottleWebFilterBuilder builder = ThrottleWebFilter.builder(limiter);
    return onDenied == null
        ? builder
        : builder.onDenied((exchange, decision) -> respond(exchange, onDenied));
  }

  @Override
  protected Function<ServerWebExchange, String> keyOf(String... headers) {
    return ThrottleWebFilter.keyOf(headers);
  }

  @Override
  protected HttpResponse<String> request(
      ThrottleWebFilterBuilder options, String degradedHeader, int status, String... fields) {
    WebFilter application =
        (exchange, chain) -> {
          String degraded = exchange.getRequest().getHeaders().getFirst(degradedHeader);
          served(ThrottleWebFilter.decisionOf(exchange), degraded);
          return respond(exchange, status);
        };
    try (Web web = Web.serve(options.build(), application)) {
      return web.get("/", fields);
    }
  }
}
