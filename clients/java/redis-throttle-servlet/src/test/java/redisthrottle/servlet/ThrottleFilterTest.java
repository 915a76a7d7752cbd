package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import jakarta.servlet.AsyncContext;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.catalina.Context;
import org.apache.catalina.Wrapper;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import redisthrottle.Count;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Server;

/** Runs the filter in Tomcat, with a server that has the module. */
class ThrottleFilterTest {
  private static Server redis;
  private static RedisClient client;
  private static Limiter limiter;
  private static Path folder;
  private final HttpClient http = HttpClient.newHttpClient();
  private final LinkedBlockingQueue<AsyncContext> started = new LinkedBlockingQueue<>();
  private Tomcat tomcat;

  @BeforeAll
  static void start() throws IOException {
    redis = Server.withModule();
    client = RedisClient.create();
    folder = Files.createTempDirectory("redis-throttle-tomcat");
    LettuceConnector connector = LettuceConnector.of(client, redis.uri());
    limiter = Limiter.builder(connector).timeout(Duration.ofSeconds(5)).build();
  }

  @AfterAll
  static void stop() throws IOException {
    limiter.close();
    client.shutdown();
    redis.close();
  }

  @AfterEach
  void stopTomcat() throws Exception {
    if (tomcat != null) {
      tomcat.stop();
      tomcat.destroy();
    }
  }

  /** Answers by the path. */
  private final class Application extends HttpServlet {
    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException, ServletException {
      switch (request.getServletPath()
          + String.valueOf(request.getPathInfo()).replace("null", "")) {
        case "/async" -> {
          AsyncContext context = request.startAsync();
          context.setTimeout(0);
          started.add(context);
        }
        case "/timeout" -> request.startAsync().setTimeout(50);
        case "/committed" -> {
          response.getWriter().write("a");
          response.flushBuffer();
          throw new ServletException("after the head");
        }
        case "/failure" -> response.sendError(500);
        default -> response.getWriter().write("ok");
      }
    }
  }

  private void serve(ThrottleFilter filter) throws Exception {
    tomcat = new Tomcat();
    tomcat.setBaseDir(folder.toString());
    tomcat.setHostname("127.0.0.1");
    tomcat.setPort(0);
    Context context = tomcat.addContext("", folder.toString());
    Wrapper wrapper = Tomcat.addServlet(context, "application", new Application());
    wrapper.setAsyncSupported(true);
    context.addServletMappingDecoded("/*", "application");
    FilterDef definition = new FilterDef();
    definition.setFilterName("throttle");
    definition.setFilter(filter);
    definition.setAsyncSupported("true");
    context.addFilterDef(definition);
    FilterMap map = new FilterMap();
    map.setFilterName("throttle");
    map.addURLPattern("/*");
    context.addFilterMap(map);
    tomcat.getConnector();
    tomcat.start();
  }

  private HttpRequest request(String path) {
    int port = tomcat.getConnector().getLocalPort();
    return HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).build();
  }

  private HttpResponse<String> get(String path) throws Exception {
    return http.send(request(path), HttpResponse.BodyHandlers.ofString());
  }

  private static void awaitFree(Rule rule) {
    Server.await("the lease is free", () -> limiter.peek(rule.of("a")).allowed());
  }

  @Test
  void answers_429_with_fields_and_a_problem() throws Exception {
    Rule api = Rule.gcra("api", 1, 1, Duration.ofMinutes(1));
    serve(
        ThrottleFilter.builder(limiter).rule(api).key(r -> r.getHeader("Accept-Language")).build());
    assertEquals(400, get("/").statusCode());
    tomcat.stop();
    tomcat.destroy();
    serve(ThrottleFilter.builder(limiter).rule(api).build());
    HttpResponse<String> first = get("/");
    assertEquals(200, first.statusCode());
    assertEquals("\"api\";q=1;w=60", first.headers().firstValue("RateLimit-Policy").orElse(""));
    HttpResponse<String> second = get("/");
    assertEquals(429, second.statusCode());
    assertEquals("60", second.headers().firstValue("Retry-After").orElse(""));
    assertEquals("no-store", second.headers().firstValue("Cache-Control").orElse(""));
    assertEquals(
        "application/problem+json", second.headers().firstValue("Content-Type").orElse(""));
    assertTrue(second.body().contains("\"violated-policies\":[\"api\"]"), second.body());
  }

  @Test
  void releases_the_lease_when_an_async_request_completes() throws Exception {
    Rule jobs = Rule.lease("async", 1, Duration.ofMinutes(1));
    serve(ThrottleFilter.builder(limiter).rule(jobs).key(r -> "a").build());
    var pending = http.sendAsync(request("/async"), HttpResponse.BodyHandlers.ofString());
    AsyncContext context = started.take();
    assertEquals(429, get("/").statusCode());
    context.complete();
    assertEquals(200, pending.get().statusCode());
    awaitFree(jobs);
    assertEquals(200, get("/").statusCode());
  }

  @Test
  void releases_the_lease_when_an_async_request_times_out() throws Exception {
    Rule jobs = Rule.lease("timeout", 1, Duration.ofMinutes(1));
    serve(ThrottleFilter.builder(limiter).rule(jobs).key(r -> "a").build());
    assertEquals(500, get("/timeout").statusCode());
    awaitFree(jobs);
  }

  @Test
  void releases_the_lease_when_a_committed_response_fails() throws Exception {
    Rule jobs = Rule.lease("committed", 1, Duration.ofMinutes(1));
    serve(ThrottleFilter.builder(limiter).rule(jobs).key(r -> "a").build());
    try {
      get("/committed");
    } catch (IOException e) {
      // The container may cut the connection.
    }
    awaitFree(jobs);
  }

  @Test
  void gives_back_what_does_not_count() throws Exception {
    Rule login = Rule.fixed("login", 2, Duration.ofDays(1)).count(Count.FAILURES);
    serve(ThrottleFilter.builder(limiter).rule(login).key(r -> "a").build());
    assertEquals(200, get("/").statusCode());
    Server.await("the unit is back", () -> limiter.peek(login.of("a")).remaining() == 1);
    assertEquals(500, get("/failure").statusCode());
    assertEquals(500, get("/failure").statusCode());
    assertEquals(429, get("/").statusCode());
  }

  @Test
  void answers_500_for_a_wrong_cost_and_calls_the_hooks() throws Exception {
    Rule day = Rule.fixed("hooks", 1, Duration.ofDays(1));
    ThrottleFilterBuilder options = ThrottleFilter.builder(limiter).rule(day).key(r -> "a");
    options.onDenied((request, response, decision) -> response.setStatus(418));
    options.cost(r -> r.getRequestURI().equals("/wrong") ? -1 : 1);
    serve(options.build());
    assertEquals(500, get("/wrong").statusCode());
    assertEquals(200, get("/").statusCode());
    assertEquals(418, get("/").statusCode());
  }

  @Test
  void refuses_mistakes_when_it_is_built() {
    Rule api = Rule.gcra("api", 1, 1, Duration.ofMinutes(1));
    ThrottleFilterBuilder none = ThrottleFilter.builder(limiter);
    assertThrows(InvalidArgumentException.class, none::build);
    assertThrows(InvalidArgumentException.class, () -> none.rule(api).rule(api));
    assertThrows(InvalidArgumentException.class, () -> none.degradedHeader("a b"));
  }
}
