package redisthrottle.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.env.YamlPropertySourceLoader;
import org.springframework.cloud.gateway.event.FilterArgsEvent;
import org.springframework.cloud.gateway.filter.ratelimit.RateLimiter;
import org.springframework.cloud.gateway.filter.ratelimit.RedisRateLimiter;
import org.springframework.core.env.EnumerablePropertySource;
import org.springframework.core.io.ByteArrayResource;
import reactor.core.publisher.Flux;
import redisthrottle.InvalidArgumentException;
import redisthrottle.lettuce.Server;

/** Requests go through a gateway to an upstream; the server has the module. */
class GatewayTest {
  private static Server server;
  private static Gateway gateway;

  /** Returns the properties of the route that the page of the client shows. */
  private static Map<String, Object> readExample() throws IOException {
    String page = Files.readString(Path.of("../../../docs/clients/java.md"));
    Matcher block = Pattern.compile("(?ms)^```yaml\n(spring\\.cloud.*?)^```$").matcher(page);
    assertTrue(block.find(), "no route");
    byte[] yaml = block.group(1).getBytes(StandardCharsets.UTF_8);
    var sources = new YamlPropertySourceLoader().load("page", new ByteArrayResource(yaml));
    Map<String, Object> properties = new LinkedHashMap<>();
    var source = (EnumerablePropertySource<?>) sources.get(0);
    for (String name : source.getPropertyNames()) {
      properties.put(name, source.getProperty(name));
    }
    return properties;
  }

  @BeforeAll
  static void start() throws IOException {
    server = Server.withModule("--rl.debug-commands", "yes");
    // Calls may take longer than the time in which a unit returns.
    server.send("RL.DEBUG", "CLOCK", "FREEZE");
    server.send("RL.POLICY", "SET", "never", "GCRA", "2", "1", "60");
    gateway =
        new Gateway(server.uri())
            .route("api", "throttle.rate", "10", "throttle.period", "1m")
            .route("day", "throttle.rule", "day")
            .route("never", "throttle.rule", "never", "throttle.cost", "3")
            .route(
                "old",
                "throttle.rate",
                "1",
                "throttle.period",
                "1m",
                "throttle.headers",
                "DRAFT_6,X_RATELIMIT")
            .route(
                "address",
                "throttle.rate",
                "1",
                "throttle.period",
                "1h",
                "key-resolver",
                "#{@address}")
            .route(
                "both", "throttle.rate", "1", "throttle.period", "1h", "key-resolver", "#{@both}")
            .route("zero", "throttle.rate", "1", "throttle.burst", "0")
            .route("none", "throttle.rate", "0", "status-code", "SERVICE_UNAVAILABLE")
            .route(
                "spring",
                "throttle.rate",
                "6/minute",
                "throttle.burst",
                "2",
                "throttle.spring-headers",
                "true")
            .route("hole", "throttle.rate", "100", "throttle.burst", "40")
            .route(
                "standard",
                "rate-limiter",
                "#{@redisRateLimiter}",
                "redis-rate-limiter.replenishRate",
                "100",
                "redis-rate-limiter.burstCapacity",
                "40")
            .page(readExample())
            .start();
  }

  @AfterAll
  static void end() {
    if (gateway != null) {
      gateway.close();
    }
    if (server != null) {
      server.close();
    }
  }

  static String field(HttpResponse<String> response, String name) {
    return String.join("|", response.headers().allValues(name));
  }

  @Test
  void responds_with_429_and_retry_after_to_the_eleventh_request() {
    int before = gateway.served.get();
    for (int left = 9; left >= 0; left--) {
      HttpResponse<String> response = gateway.get("api", "ada");
      assertEquals(204, response.statusCode());
      assertEquals("\"api\";q=10;w=60", field(response, "RateLimit-Policy"));
      assertTrue(field(response, "RateLimit").startsWith("\"api\";r=" + left + ";t="));
      assertEquals("", field(response, "Retry-After"));
    }
    HttpResponse<String> denied = gateway.get("api", "ada");
    assertEquals(429, denied.statusCode());
    assertEquals("6", field(denied, "Retry-After"));
    assertEquals("\"api\";r=0;t=6", field(denied, "RateLimit"));
    assertEquals("no-store", field(denied, "Cache-Control"));
    assertEquals("application/problem+json", field(denied, "Content-Type"));
    assertTrue(denied.body().contains("\"status\":429"), denied.body());
    assertTrue(denied.body().contains("\"violated-policies\":[\"api\"]"), denied.body());
    assertEquals(10, gateway.served.get() - before);
    assertEquals(204, gateway.get("api", "grace").statusCode());
  }

  @Test
  void limits_the_route_of_the_page() {
    HttpResponse<String> response = gateway.get("shop/cart", "ada");
    assertEquals(204, response.statusCode());
    assertEquals("\"shop\";q=40", field(response, "RateLimit-Policy"));
  }

  @Test
  void limits_a_route_by_the_rule_of_a_bean() {
    assertEquals(204, gateway.get("day", "ada").statusCode());
    assertEquals("\"day\";q=2;w=86400", field(gateway.get("day", "ada"), "RateLimit-Policy"));
    assertEquals(429, gateway.get("day", "ada").statusCode());
  }

  @Test
  void responds_with_413_if_a_retry_never_helps() {
    HttpResponse<String> response = gateway.get("never", "ada");
    assertEquals(413, response.statusCode());
    assertEquals("", field(response, "Retry-After"));
    assertFalse(field(response, "RateLimit").isEmpty());
    assertTrue(response.body().contains("\"status\":413"), response.body());
  }

  @Test
  void writes_the_older_fields() {
    HttpResponse<String> response = gateway.get("old", "ada");
    assertEquals("1", field(response, "RateLimit-Limit"));
    assertEquals("0", field(response, "X-RateLimit-Remaining"));
    assertEquals("", field(response, "RateLimit"));
  }

  @Test
  void limits_an_address_behind_a_trusted_proxy() {
    // The leftmost address is what the client wrote.
    String name = "X-Forwarded-For";
    assertEquals(204, gateway.send("address", name, "192.0.2.1, 192.0.2.9").statusCode());
    assertEquals(429, gateway.send("address", name, "192.0.2.2, 192.0.2.9").statusCode());
    assertEquals(204, gateway.send("address", name, "192.0.2.10").statusCode());
    assertEquals(403, gateway.send("address", name, "unknown").statusCode());
  }

  @Test
  void denies_every_request_under_a_limit_of_0_without_a_call() {
    int before = gateway.served.get();
    HttpResponse<String> denied = gateway.get("zero", "ada");
    assertEquals(429, denied.statusCode());
    assertEquals("\"zero\";q=0;w=1", field(denied, "RateLimit-Policy"));
    assertEquals("", field(denied, "Retry-After"));
    assertTrue(denied.body().contains("\"violated-policies\":[\"zero\"]"), denied.body());
    HttpResponse<String> other = gateway.get("none", "ada");
    assertEquals(503, other.statusCode());
    assertTrue(other.body().contains("\"status\":503"), other.body());
    assertEquals(before, gateway.served.get());
    assertEquals("0", server.send("EXISTS", "rl:zero:ada", "rl:none:ada"));
  }

  @Test
  void sends_the_fields_of_the_standard_limiter_by_an_option() {
    for (String left : new String[] {"1", "0", "0"}) {
      HttpResponse<String> response = gateway.get("spring", "ada");
      assertEquals(left, field(response, "X-RateLimit-Remaining"));
      assertEquals("2", field(response, "X-RateLimit-Burst-Capacity"));
      assertEquals("6", field(response, "X-RateLimit-Replenish-Rate"));
      assertEquals("1", field(response, "X-RateLimit-Requested-Tokens"));
      assertFalse(field(response, "RateLimit").isEmpty());
    }
    assertEquals("10", field(gateway.get("spring", "ada"), "Retry-After"));
    assertEquals("", field(gateway.get("api", "eve"), "X-RateLimit-Remaining"));
  }

  @Test
  void responds_with_400_to_a_key_that_is_not_unicode() {
    RateLimiter<?> limiter = gateway.context.getBean(RateLimiter.class);
    UndecidedException thrown =
        assertThrows(UndecidedException.class, () -> limiter.isAllowed("api", "a\ud800").block());
    assertEquals(400, thrown.getStatusCode().value());
  }

  @Test
  void limits_by_several_headers_together() {
    assertEquals(204, gateway.send("both", "X-Tenant", "a|b", "X-User", "c").statusCode());
    assertEquals(204, gateway.send("both", "X-Tenant", "a", "X-User", "b|c").statusCode());
    assertEquals(429, gateway.send("both", "X-Tenant", "a", "X-User", "b|c").statusCode());
    assertEquals(403, gateway.send("both", "X-Tenant", "a").statusCode());
    String[] twice = {"X-Tenant", "d", "X-Tenant", "d", "X-User", "c"};
    assertEquals(403, gateway.send("both", twice).statusCode());
  }

  @Test
  void responds_with_403_without_a_key_and_400_with_an_empty_one() {
    assertEquals(403, gateway.send("api").statusCode());
    assertEquals(400, gateway.get("api", "").statusCode());
  }

  /** The standard limiter stores nothing if {@code floor(2 * burst / rate)} is 0 seconds. */
  @Test
  void limits_a_burst_below_half_the_rate_which_the_standard_limiter_does_not() {
    RateLimiter<?> primary = gateway.context.getBean(RateLimiter.class);
    assertInstanceOf(ThrottleRateLimiter.class, primary);
    RateLimiter<?> standard = gateway.context.getBean(RedisRateLimiter.class);
    assertEquals(300, allowed(standard, "standard", "ada", 300));
    assertEquals(40, allowed(primary, "hole", "ada", 300));
  }

  private static long allowed(RateLimiter<?> limiter, String route, String key, int calls) {
    return Flux.range(0, calls)
        .flatMap(call -> limiter.isAllowed(route, key), 32)
        .filter(RateLimiter.Response::isAllowed)
        .count()
        .blockOptional(Duration.ofMinutes(1))
        .orElseThrow();
  }

  @Test
  void rejects_an_invalid_configuration_when_a_route_is_built() {
    Map<String, Map<String, Object>> all =
        Map.ofEntries(
            Map.entry("burst", Map.of("throttle.rate", "1", "throttle.burst", "-1")),
            Map.entry("rate", Map.of("throttle.burst", "10")),
            Map.entry("rate ", Map.of("throttle.rate", "0", "throttle.burst", "10")),
            Map.entry("rate  ", Map.of("throttle.rate", "many")),
            Map.entry("cost ", Map.of("throttle.rate", "1", "throttle.cost", "many")),
            Map.entry("period", Map.of("throttle.rate", "1/minute", "throttle.period", "1m")),
            Map.entry("period ", Map.of("throttle.rate", "1", "throttle.period", "60")),
            Map.entry("throttle.burts", Map.of("throttle.rate", "1", "throttle.burts", "40")),
            Map.entry("name", Map.of("throttle.rate", "1", "throttle.name", "a b")),
            Map.entry("cost", Map.of("throttle.rate", "1", "throttle.cost", "2")),
            Map.entry("rule", Map.of("throttle.rule", "jobs")),
            Map.entry("rule ", Map.of("throttle.rule", "missing")),
            Map.entry("rule  ", Map.of("throttle.rule", "day", "throttle.rate", "1")));
    ThrottleRateLimiter limiter = gateway.context.getBean(ThrottleRateLimiter.class);
    all.forEach(
        (argument, args) -> {
          FilterArgsEvent event = new FilterArgsEvent(this, "wrong", args);
          InvalidArgumentException e =
              assertThrows(InvalidArgumentException.class, () -> limiter.onApplicationEvent(event));
          assertEquals(argument.trim(), e.argument());
        });
    // The configuration of a route in Java, too.
    Map<String, ThrottleRateLimiter.Config> routes = limiter.getConfig();
    ThrottleRateLimiter.Config none = new ThrottleRateLimiter.Config();
    assertThrows(InvalidArgumentException.class, () -> routes.put("wrong", none));
  }
}
