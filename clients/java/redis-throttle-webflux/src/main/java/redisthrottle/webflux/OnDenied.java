package redisthrottle.webflux;

import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;
import redisthrottle.Decision;

/** A function that responds to denied requests. It must not block. */
@FunctionalInterface
public interface OnDenied {
  /**
   * Responds to a request. The fields of the decision and {@code Cache-Control} are set; the status
   * is not.
   */
  Mono<Void> answer(ServerWebExchange exchange, Decision decision);
}
