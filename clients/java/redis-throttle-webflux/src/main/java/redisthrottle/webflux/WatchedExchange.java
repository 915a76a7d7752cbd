package redisthrottle.webflux;

import org.springframework.core.io.buffer.DataBuffer;
import org.springframework.http.codec.multipart.Part;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.http.server.reactive.ServerHttpRequestDecorator;
import org.springframework.util.MultiValueMap;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.ServerWebExchangeDecorator;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import redisthrottle.middleware.ClientGone;
import redisthrottle.middleware.TakenItems;

/** An exchange that notes when its client cuts the body of the request. */
final class WatchedExchange extends ServerWebExchangeDecorator {
  private final ServerHttpRequest request;
  private final TakenItems taken;

  WatchedExchange(ServerWebExchange exchange, TakenItems taken) {
    super(exchange);
    this.taken = taken;
    request =
        new ServerHttpRequestDecorator(exchange.getRequest()) {
          @Override
          public Flux<DataBuffer> getBody() {
            return super.getBody().doOnError(error -> cut());
          }
        };
  }

  private void cut() {
    taken.keep();
    taken.stopRenewing();
  }

  @Override
  public ServerHttpRequest getRequest() {
    return request;
  }

  // Forms are read from the request of the server.

  @Override
  public Mono<MultiValueMap<String, String>> getFormData() {
    return super.getFormData().doOnError(ClientGone::isReportedBy, error -> cut());
  }

  @Override
  public Mono<MultiValueMap<String, Part>> getMultipartData() {
    return super.getMultipartData().doOnError(ClientGone::isReportedBy, error -> cut());
  }
}
