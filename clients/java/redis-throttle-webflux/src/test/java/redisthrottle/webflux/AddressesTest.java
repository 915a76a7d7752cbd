package redisthrottle.webflux;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.http.server.reactive.ServerHttpRequestDecorator;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import redisthrottle.Event;
import redisthrottle.FakeServer;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Limiter;
import redisthrottle.Proxies;
import redisthrottle.Rule;

/** Finds the clients of the cases that all languages share. */
class AddressesTest {
  private final AtomicReference<String> hash = new AtomicReference<>();
  private final AtomicReference<JsonNode> input = new AtomicReference<>();
  private final AtomicReference<WebFilter> filter = new AtomicReference<>();

  @Test
  void finds_the_addresses_of_the_cases() throws IOException {
    JsonNode all = new ObjectMapper().readTree(Path.of("../../cases.json").toFile());
    Rule api = Rule.gcra("api", 1000, 1000, Duration.ofMinutes(1));
    Consumer<Event> hook = event -> hash.set(event.keyHash());
    try (Limiter limiter = new FakeServer().limiter().onDecision(hook).build();
        Web web = Web.serve((exchange, chain) -> filter.get().filter(from(exchange), chain))) {
      for (JsonNode one : all.get("addresses")) {
        String name = one.get("name").asText();
        JsonNode expected = one.get("expect");
        List<String> trusted = texts(one.get("input").get("trusted"));
        ThrottleWebFilterBuilder options = ThrottleWebFilter.builder(limiter).rule(api);
        if (expected.isObject()) {
          assertThrows(InvalidArgumentException.class, () -> options.trustedProxies(trusted), name);
          continue;
        }
        filter.set(options.trustedProxies(trusted).build());
        input.set(one.get("input"));
        hash.set(null);
        String subject = expected.isNull() ? named(input.get().get("peer")) : expected.asText();
        assertEquals(subject == null ? 400 : 200, web.get("/").statusCode(), name);
        String found = hash.get();
        if (subject != null) {
          limiter.check(api.of(subject));
          assertEquals(hash.get(), found, name);
        }
      }
    }
    assertTrue(all.get("addresses").size() > 40);
  }

  /** Returns the subject of a peer without an address; null if it has one. */
  private static String named(JsonNode peer) {
    String name = peer.isNull() ? "" : peer.asText();
    boolean hasAddress = Proxies.trust(List.of()).subject(name, List.of()) != null;
    return hasAddress ? null : "peer:";
  }

  /** Returns an exchange with the peer of the case. */
  private ServerWebExchange from(ServerWebExchange exchange) {
    JsonNode peer = input.get().get("peer");
    List<String> fields = texts(input.get().get("forwarded"));
    InetSocketAddress address =
        peer.isNull() ? null : InetSocketAddress.createUnresolved(peer.asText(), 1);
    ServerHttpRequest forwarded =
        exchange.getRequest().mutate().headers(all -> all.put("X-Forwarded-For", fields)).build();
    ServerHttpRequest request =
        new ServerHttpRequestDecorator(forwarded) {
          @Override
          public InetSocketAddress getRemoteAddress() {
            return address;
          }
        };
    return exchange.mutate().request(request).build();
  }

  private static List<String> texts(JsonNode given) {
    List<String> all = new ArrayList<>();
    given.forEach(text -> all.add(text.asText()));
    return all;
  }
}
