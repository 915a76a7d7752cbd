package redisthrottle.webflux;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Socket;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.IntPredicate;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.http.HttpStatusCode;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Mono;
import redisthrottle.Count;
import redisthrottle.Lease;
import redisthrottle.Limiter;
import redisthrottle.LogLines;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Runs the filter in Netty, with a server that has the module. */
class ThrottleWebFilterTest {
  private static final String DEGRADED = "X-Limiter-Degraded";
  private static final Duration MINUTE = Duration.ofMinutes(1);
  private static final Duration DAY = Duration.ofDays(1);
  private static Server redis;
  private static Limiter limiter;

  @BeforeAll
  static void start() {
    redis = Server.withModule();
    limiter = Redis.limiter(redis);
  }

  @AfterAll
  static void stop() {
    limiter.close();
    redis.close();
  }

  private static ThrottleWebFilterBuilder filter() {
    return ThrottleWebFilter.builder(limiter);
  }

  private static String header(ServerWebExchange exchange, String name) {
    return exchange.getRequest().getHeaders().getFirst(name);
  }

  private static String field(HttpResponse<String> response, String name) {
    return response.headers().firstValue(name).orElse("");
  }

  @Test
  void responds_to_head_with_the_length_of_the_problem() {
    try (Web web = Web.serve(filter().rule(Rule.fixed("head", 1, DAY)).build())) {
      assertEquals("part", web.get("/").body());
      HttpResponse<String> denied = web.get("/");
      HttpResponse<String> head = web.send("HEAD", "/");
      assertEquals(429, head.statusCode());
      assertEquals("", head.body());
      assertEquals("" + denied.body().length(), field(head, "Content-Length"));
      assertEquals(1, web.served.size());
    }
  }

  @Test
  void responds_to_a_denial_that_the_application_throws() {
    Rule day = Rule.fixed("outside", 9, DAY);
    Rule jobs = Rule.lease("inside", 1, MINUTE);
    WebFilter application =
        (exchange, chain) ->
            Mono.fromCompletionStage(() -> limiter.leaseAsync(jobs.of("a")))
                .onErrorMap(e -> new IllegalStateException("no job", e))
                .flatMap(lease -> chain.filter(exchange));
    try (Web web = Web.serve(filter().rule(day).build(), application)) {
      try (Lease held = limiter.lease(jobs.of("a"))) {
        assertTrue(held.isHeld());
        HttpResponse<String> denied = web.get("/");
        assertEquals(429, denied.statusCode());
        assertEquals("application/problem+json", field(denied, "Content-Type"));
        assertTrue(denied.body().contains("\"violated-policies\":[\"inside\"]"), denied.body());
        assertTrue(Integer.parseInt(field(denied, "Retry-After")) > 0);
        assertEquals(
            List.of("\"outside\";q=9;w=86400", "\"inside\";q=1"),
            denied.headers().allValues("RateLimit-Policy"));
      }
      assertEquals(200, web.get("/").statusCode());
    }
  }

  @Test
  void responds_with_400_without_a_subject() {
    Rule api = Rule.gcra("no-subject", 1, 1, MINUTE);
    ThrottleWebFilterBuilder options = filter().rule(api);
    options.key(e -> header(e, "X-Key") == null ? e.getAttribute("none").toString() : "\ud800");
    try (LogLines lines = LogLines.of("redisthrottle.middleware");
        Web web = Web.serve(options.build())) {
      for (String[] fields : new String[][] {{}, {}, {"X-Key", "a"}}) {
        HttpResponse<String> response = web.get("/", fields);
        assertEquals(400, response.statusCode());
        assertEquals("application/problem+json", field(response, "Content-Type"));
        assertTrue(response.body().contains("does not say who"), response.body());
      }
      assertEquals(1, lines.records().size());
      assertInstanceOf(NullPointerException.class, lines.records().get(0).getThrown());
    }
  }

  @Test
  void logs_each_function_that_fails_once() {
    IntPredicate none =
        status -> {
          throw new IllegalStateException("no count");
        };
    Rule first = Rule.fixed("first-key", 5, DAY).count(Count.when(none));
    Rule second = Rule.fixed("second-key", 5, DAY);
    ThrottleWebFilterBuilder options = filter();
    options.rule(first, e -> header(e, "X-First").trim());
    options.rule(second, e -> header(e, "X-Second").trim());
    try (LogLines lines = LogLines.of("redisthrottle.middleware");
        Web web = Web.serve(options.build())) {
      for (int time = 1; time <= 2; time++) {
        assertEquals(400, web.get("/").statusCode());
        assertEquals(400, web.get("/", "X-First", "a").statusCode());
        assertEquals(200, web.get("/", "X-First", "a", "X-Second", "b").statusCode());
      }
      assertEquals(3, lines.records().size());
    }
    assertEquals(3, limiter.peek(first.of("a").cost(0)).remaining());
  }

  @Test
  void joins_headers_to_one_subject() throws IOException {
    Rule api = Rule.fixed("joined", 1, DAY);
    ThrottleWebFilterBuilder options = filter().rule(api);
    options.key(ThrottleWebFilter.keyOf("X-Tenant", "X-Api-Key"));
    try (Web web = Web.serve(options.build())) {
      assertEquals(200, web.get("/", "X-Tenant", "a|b", "X-Api-Key", "c").statusCode());
      assertEquals(200, web.get("/", "X-Tenant", "a", "X-Api-Key", "b|c").statusCode());
      assertEquals(400, web.get("/", "X-Tenant", "a").statusCode());
      String[] twice = {"X-Tenant", "a", "X-Tenant", "a", "X-Api-Key", "d"};
      assertEquals(400, web.get("/", twice).statusCode());
      // A byte is a character, in every server and language.
      String fields = "X-Tenant: \u00c3\u00a9\r\nX-Api-Key: c\r\n\r\n";
      try (Socket socket = web.openWith("GET / HTTP/1.1\r\nHost: a\r\n" + fields)) {
        Web.readUntil(socket, "200 OK");
      }
    }
    assertEquals(0, limiter.peek(api.of("a%7Cb|c")).remaining());
    assertEquals(0, limiter.peek(api.of("\u00c3\u00a9|c")).remaining());
  }

  @Test
  void takes_once_under_each_of_two_nested_filters() {
    Rule wide = Rule.fixed("wide", 5, DAY);
    Rule small = Rule.fixed("small", 1, DAY);
    try (Limiter unreachable = Redis.unreachable().build()) {
      ThrottleWebFilter marks =
          ThrottleWebFilter.builder(unreachable)
              .rule(Rule.gcra("marks", 1, 1, MINUTE))
              .degradedHeader(DEGRADED)
              .build();
      ThrottleWebFilter outer = filter().rule(wide).build();
      ThrottleWebFilter inner = filter().rule(small).degradedHeader(DEGRADED).build();
      try (Web web = Web.serve(marks, outer, inner)) {
        HttpResponse<String> allowed = web.get("/", DEGRADED, "forged");
        assertEquals(200, allowed.statusCode());
        assertEquals(
            List.of("\"wide\";q=5;w=86400", "\"small\";q=1;w=86400"),
            allowed.headers().allValues("RateLimit-Policy"));
        ServerWebExchange served = web.served.remove();
        assertEquals(small, ThrottleWebFilter.decisionOf(served).rule());
        assertEquals(List.of("1"), served.getRequest().getHeaders().get(DEGRADED));
        assertEquals(429, web.get("/").statusCode());
      }
    }
    assertEquals(3, limiter.peek(wide.of("127.0.0.1").cost(0)).remaining());
  }

  @Test
  void responds_to_failures_with_500_or_by_the_function_of_the_application() {
    Limiter closed = Redis.unreachable().build();
    Rule api = Rule.gcra("api", 1, 1, MINUTE);
    ThrottleWebFilterBuilder options = ThrottleWebFilter.builder(closed).rule(api);
    try (LogLines lines = LogLines.of("redisthrottle.webflux");
        Web web = Web.serve(options.build())) {
      closed.close();
      HttpResponse<String> failed = web.get("/");
      assertEquals(500, failed.statusCode());
      assertTrue(failed.body().contains("could not be asked"), failed.body());
      String line = lines.texts().get(0);
      assertTrue(line.contains("could not be decided: java.lang.IllegalState"), line);
    }
    LinkedBlockingQueue<RuntimeException> failures = new LinkedBlockingQueue<>();
    OnFailure own =
        (exchange, failure) -> {
          failures.add(failure);
          exchange.getResponse().setStatusCode(HttpStatusCode.valueOf(418));
          return exchange.getResponse().setComplete();
        };
    try (Web web = Web.serve(options.onFailure(own).build())) {
      assertEquals(418, web.get("/").statusCode());
      assertInstanceOf(IllegalStateException.class, failures.remove());
    }
    redis.send("SET", "rl:wrong:a", "text");
    Rule wrong = Rule.gcra("wrong", 1, 1, MINUTE);
    ThrottleWebFilterBuilder rejected = filter().rule(wrong).key(e -> "a").onFailure(own);
    rejected.cost(e -> e.getRequest().getPath().value().equals("/cost") ? -1 : 1);
    try (Web web = Web.serve(rejected.build())) {
      assertEquals(418, web.get("/").statusCode());
      assertTrue(failures.remove().getMessage().contains("WRONGTYPE"));
      assertEquals(400, web.get("/cost").statusCode());
      assertEquals(0, web.served.size());
    }
  }
}
