package redisthrottle.gateway;

import com.sun.net.httpserver.HttpServer;
import io.lettuce.core.RedisURI;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.gateway.filter.ratelimit.KeyResolver;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Primary;
import org.springframework.core.env.Environment;
import reactor.core.publisher.Mono;
import redisthrottle.Limiter;
import redisthrottle.Proxies;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Server;

/** A gateway on a free port with an upstream that counts its requests. */
final class Gateway implements AutoCloseable {
  private static final String ROUTES = "spring.cloud.gateway.server.webflux.routes";
  private static final HttpClient HTTP = HttpClient.newHttpClient();

  final AtomicInteger served = new AtomicInteger();
  private final HttpServer upstream;
  private final Map<String, Object> properties = new LinkedHashMap<>();
  private int routes;
  ConfigurableApplicationContext context;

  Gateway(RedisURI redis) {
    try {
      InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
      upstream = HttpServer.create(any, 0);
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
    upstream.createContext(
        "/",
        exchange -> {
          served.incrementAndGet();
          exchange.sendResponseHeaders(204, -1);
          exchange.close();
        });
    upstream.start();
    properties.put("server.port", 0);
    properties.put("server.address", "127.0.0.1");
    properties.put("spring.main.banner-mode", "off");
    properties.put("logging.level.root", "error");
    properties.put("spring.data.redis.host", redis.getHost());
    properties.put("spring.data.redis.port", redis.getPort());
  }

  /** Adds a route {@code /id} with arguments of its filter: names and values in turn. */
  Gateway route(String id, String... args) {
    String route = ROUTES + "[" + routes++ + "].";
    properties.put(route + "id", id);
    properties.put(route + "uri", "http://127.0.0.1:" + upstream.getAddress().getPort());
    properties.put(route + "predicates[0]", "Path=/" + id);
    properties.put(route + "filters[0].name", "RequestRateLimiter");
    for (int at = 0; at < args.length; at += 2) {
      properties.put(route + "filters[0].args[" + args[at] + "]", args[at + 1]);
    }
    return this;
  }

  /** Adds a route that a page shows, with its upstream and its key in place of the page's. */
  Gateway page(Map<String, Object> example) {
    String from = ROUTES + "[0]";
    String to = ROUTES + "[" + routes++ + "]";
    example.forEach((name, value) -> properties.put(name.replace(from, to), value));
    properties.put(to + ".uri", "http://127.0.0.1:" + upstream.getAddress().getPort());
    return this;
  }

  Gateway start() {
    SpringApplication application = new SpringApplication(Application.class);
    application.setDefaultProperties(properties);
    context = application.run();
    return this;
  }

  /** Requests a route as a user. */
  HttpResponse<String> get(String path, String user) {
    return send(path, "X-User", user);
  }

  /** Requests a route with header fields: names and values in turn. */
  HttpResponse<String> send(String path, String... fields) {
    String port = context.getEnvironment().getProperty("local.server.port");
    HttpRequest.Builder request =
        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/" + path));
    for (int at = 0; at < fields.length; at += 2) {
      request.header(fields[at], fields[at + 1]);
    }
    try {
      return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
    } catch (IOException | InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public void close() {
    if (context != null) {
      context.close();
    }
    upstream.stop(0);
  }

  /** The application. It has no more than a user's: a limiter, rules and a resolver of keys. */
  @SpringBootConfiguration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  static class Application {
    @Bean
    Limiter limiter(Environment environment) {
      int port = environment.getRequiredProperty("spring.data.redis.port", Integer.class);
      RedisURI uri = RedisURI.create("127.0.0.1", port);
      return Limiter.builder(LettuceConnector.of(Server.CLIENT, uri))
          // The first call of a cold gateway takes seconds on a busy machine.
          .timeout(Duration.ofMinutes(1))
          .build();
    }

    @Bean
    Rule day() {
      return Rule.fixed("day", 2, Duration.ofDays(1));
    }

    @Bean
    Rule jobs() {
      return Rule.lease("jobs", 2, Duration.ofSeconds(30));
    }

    @Bean
    Rule never() {
      return Rule.policy("never");
    }

    @Bean
    KeyResolver address() {
      return new ClientAddressKeyResolver(Proxies.trust(List.of("127.0.0.1")));
    }

    @Bean
    KeyResolver both() {
      return ThrottleRateLimiter.keyOf("X-Tenant", "X-User");
    }

    @Bean
    @Primary
    KeyResolver user() {
      return exchange -> Mono.justOrEmpty(exchange.getRequest().getHeaders().getFirst("X-User"));
    }
  }
}
