package redisthrottle.webflux;

import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;

/** A function that responds to requests that could not be decided. It must not block. */
@FunctionalInterface
public interface OnFailure {
  /** Responds to a request. Nothing is set yet. */
  Mono<Void> answer(ServerWebExchange exchange, RuntimeException failure);
}
