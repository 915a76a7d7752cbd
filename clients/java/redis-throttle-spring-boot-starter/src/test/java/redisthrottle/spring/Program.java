package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import redisthrottle.lettuce.Server;

/** An application that a test started. */
final class Program implements AutoCloseable {
  final ConfigurableApplicationContext context;
  private final HttpClient http = HttpClient.newHttpClient();

  private Program(ConfigurableApplicationContext context) {
    this.context = context;
  }

  /** Starts an application at a free port; arguments are {@code --name=value}. */
  static Program start(
      WebApplicationType type, Class<?> source, Server server, String... arguments) {
    boolean isReactive = type == WebApplicationType.REACTIVE;
    return new Program(
        new SpringApplicationBuilder(source)
            .web(type)
            .properties(
                "server.port=0",
                "logging.level.root=warn",
                "spring.main.banner-mode=off",
                // The gateway, which another test needs, refuses a servlet application.
                "spring.cloud.gateway.server.webflux.enabled=" + isReactive,
                "spring.cloud.gateway.server.webflux.redis.enabled=" + isReactive,
                "management.health.redis.enabled=false",
                // On a busy machine, on-error must not decide.
                "throttle.timeout=1m",
                "throttle.url=" + server.uri().toURI())
            .run(arguments));
  }

  /** Returns a field of a response. */
  static String field(HttpResponse<?> response, String name) {
    return response.headers().firstValue(name).orElseThrow();
  }

  HttpResponse<String> get(String path, String... headers) {
    return send("GET", path, headers);
  }

  /** Gets a path from the port of Actuator. */
  HttpResponse<String> probe(String path) {
    return sendTo("local.management.port", "GET", path);
  }

  HttpResponse<String> send(String method, String path, String... headers) {
    return sendTo("local.server.port", method, path, headers);
  }

  int port() {
    return context.getEnvironment().getRequiredProperty("local.server.port", Integer.class);
  }

  private HttpResponse<String> sendTo(
      String property, String method, String path, String... headers) {
    String port = context.getEnvironment().getProperty(property);
    HttpRequest.Builder request =
        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path))
            .method(method, HttpRequest.BodyPublishers.noBody());
    if (headers.length > 0) {
      request.headers(headers);
    }
    try {
      return http.send(request.build(), HttpResponse.BodyHandlers.ofString());
    } catch (IOException | InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  /**
   * Asserts that ten requests are served and the next is denied and counted, as six-lines.yaml
   * says. Returns the metrics.
   */
  String assertLimitedBySixLines() {
    for (int request = 1; request <= 10; request++) {
      HttpResponse<String> served = get("/");
      assertEquals(200, served.statusCode(), "request " + request);
      assertEquals("hello", served.body());
    }
    HttpResponse<String> denied = get("/");
    assertEquals(429, denied.statusCode());
    assertEquals("6", field(denied, "Retry-After"));
    assertEquals("\"api\";q=10;w=60", field(denied, "RateLimit-Policy"));
    assertTrue(field(denied, "RateLimit").startsWith("\"api\";r=0;t="));
    String scraped = get("/actuator/prometheus").body();
    String line = "redis_throttle_checks_total{outcome=\"denied\",rule=\"api\",source=\"server\"}";
    assertTrue(scraped.contains(line + " 1.0"), scraped);
    return scraped;
  }

  @Override
  public void close() {
    context.close();
  }
}
