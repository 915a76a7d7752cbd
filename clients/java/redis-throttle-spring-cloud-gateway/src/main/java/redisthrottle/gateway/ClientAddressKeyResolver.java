package redisthrottle.gateway;

import java.net.InetSocketAddress;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.springframework.cloud.gateway.filter.ratelimit.KeyResolver;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;
import redisthrottle.Proxies;

/**
 * Resolves the key of a request to the client's address, as {@link Proxies#client} finds it. The
 * key is empty if there is none.
 *
 * <p>Set {@code server.forward-headers-strategy} to {@code none}. Otherwise, and by default on
 * Kubernetes, the peer's address is replaced by one that any client can write.
 */
public final class ClientAddressKeyResolver implements KeyResolver {
  private final Proxies proxies;

  /** Creates a resolver that trusts these proxies. */
  public ClientAddressKeyResolver(Proxies proxies) {
    this.proxies = proxies;
  }

  @Override
  public Mono<String> resolve(ServerWebExchange exchange) {
    ServerHttpRequest request = exchange.getRequest();
    List<String> forwarded = request.getHeaders().getOrEmpty("X-Forwarded-For");
    return Mono.justOrEmpty(proxies.client(peer(request.getRemoteAddress()), forwarded));
  }

  private static @Nullable String peer(@Nullable InetSocketAddress address) {
    if (address == null) {
      return null;
    }
    return address.isUnresolved() ? address.getHostString() : address.getAddress().getHostAddress();
  }
}
