package redisthrottle.webflux;

import static org.junit.jupiter.api.Assertions.assertEquals;
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
import org.junit.jupiter.api.Test;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.http.server.reactive.ServerHttpRequestDecorator;
import org.springframework.web.server.WebFilter;
import redisthrottle.FakeServer;
import redisthrottle.Limiter;
import redisthrottle.Rule;

/** Finds the clients of the cases that all languages share. */
class AddressesTest {
  private final AtomicReference<String> hash = new AtomicReference<>();

  @Test
  void finds_the_addresses_of_the_cases() throws IOException {
    JsonNode all = new ObjectMapper().readTree(Path.of("../../cases.json").toFile());
    Rule api = Rule.gcra("api", 1000, 1000, Duration.ofMinutes(1));
    try (Limiter limiter =
        new FakeServer().limiter().onDecision(event -> hash.set(event.keyHash())).build()) {
      for (JsonNode one : all.get("addresses")) {
        String name = one.get("name").asText();
        ThrottleWebFilterBuilder options = ThrottleWebFilter.builder(limiter).rule(api);
        options.trustedProxies(texts(one.get("input").get("trusted")));
        hash.set(null);
        try (Web web = Web.serve(from(one.get("input")), options.build())) {
          JsonNode expected = one.get("expect");
          assertEquals(expected.isNull() ? 400 : 200, web.get("/").statusCode(), name);
          String found = hash.get();
          if (!expected.isNull()) {
            limiter.check(api.of(expected.asText()));
            assertEquals(hash.get(), found, name);
          }
        }
      }
    }
    assertTrue(all.get("addresses").size() > 40);
  }

  /** Returns a filter that lets a request come from the peer of a case. */
  private static WebFilter from(JsonNode input) {
    JsonNode peer = input.get("peer");
    InetSocketAddress address =
        peer.isNull() ? null : InetSocketAddress.createUnresolved(peer.asText(), 1);
    return (exchange, chain) -> {
      ServerHttpRequest forwarded =
          exchange
              .getRequest()
              .mutate()
              .headers(fields -> fields.put("X-Forwarded-For", texts(input.get("forwarded"))))
              .build();
      ServerHttpRequest request =
          new ServerHttpRequestDecorator(forwarded) {
            @Override
            public InetSocketAddress getRemoteAddress() {
              return address;
            }
          };
      return chain.filter(exchange.mutate().request(request).build());
    };
  }

  private static List<String> texts(JsonNode given) {
    List<String> all = new ArrayList<>();
    given.forEach(text -> all.add(text.asText()));
    return all;
  }
}
