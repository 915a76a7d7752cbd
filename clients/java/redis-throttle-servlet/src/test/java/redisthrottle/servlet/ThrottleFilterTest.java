package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import redisthrottle.Count;
import redisthrottle.DeniedException;
import redisthrottle.HeaderStyle;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Limiter;
import redisthrottle.OnError;
import redisthrottle.Rule;

/** Runs the filter's responses: fields, denials, failures. */
class ThrottleFilterTest extends WebTest {
  private final AtomicInteger runs = new AtomicInteger();

  private void respond(HttpServletRequest request, HttpServletResponse response)
      throws IOException {
    runs.incrementAndGet();
  }

  private static ThrottleFilterBuilder limiting(Limiter limiter, Rule rule) {
    return ThrottleFilter.builder(limiter).rule(rule).key(request -> "a");
  }

  @Test
  void responds_to_head_with_the_length_of_the_problem() throws Exception {
    serve(this::respond, limiting(limiter, Rule.fixed(name("day"), 1, MINUTE)).build());
    assertStatus(200, "/");
    HttpResponse<String> denied = get("/");
    HttpResponse<String> head =
        send(request("/").method("HEAD", HttpRequest.BodyPublishers.noBody()));
    assertEquals(429, head.statusCode());
    assertEquals("", head.body());
    assertEquals(denied.body().length() + "", field(head, "Content-Length"));
    assertEquals(1, runs.get());
  }

  @Test
  void responds_with_429_through_the_writer_of_an_outer_filter() throws Exception {
    Rule day = Rule.fixed(name("day"), 1, MINUTE);
    serve(
        this::respond,
        (request, response, chain) -> {
          response.getWriter();
          chain.doFilter(request, response);
        },
        limiting(limiter, day).build());
    assertStatus(200, "/");
    HttpResponse<String> denied = get("/");
    assertEquals(429, denied.statusCode());
    assertTrue(denied.body().endsWith("[\"" + day.name() + "\"]}"), denied.body());
  }

  @Test
  void responds_to_a_denial_that_the_application_throws() throws Exception {
    Rule day = Rule.fixed(name("day"), 9, MINUTE).count(Count.FAILURES);
    Rule few = Rule.fixed(name("few"), 1, MINUTE);
    AtomicInteger outcome = new AtomicInteger();
    Map<String, String> headers = new ConcurrentHashMap<>();
    serve(
        (request, response) -> {
          if (request.getRequestURI().equals("/committed")) {
            response.flushBuffer();
          }
          response.getWriter().write("half of a response");
          try {
            limiter.admit(List.of(few.of("a").cost(2)));
          } catch (DeniedException e) {
            outcome.set(e.status());
            headers.putAll(e.headers());
          }
          // As Spring MVC wraps it.
          try {
            limiter.admit(List.of(few.of("a"))).close();
          } catch (DeniedException e) {
            throw new ServletException("Request processing failed", e);
          }
        },
        limiting(limiter, day).build());
    assertStatus(200, "/");
    awaitLeft(9, day, "a");
    HttpResponse<String> denied = get("/");
    assertEquals(413, outcome.get());
    assertTrue(headers.remove("RateLimit").contains(few.name()));
    assertEquals("no-store", headers.remove("Cache-Control"));
    assertEquals(Set.of("RateLimit-Policy"), headers.keySet());
    assertEquals(429, denied.statusCode());
    // The charset is that of the writer that the application got.
    assertTrue(field(denied, "Content-Type").startsWith("application/problem+json"));
    assertEquals("60", field(denied, "Retry-After"));
    assertTrue(field(denied, "RateLimit").contains(few.name()), field(denied, "RateLimit"));
    assertTrue(denied.body().endsWith("[\"" + few.name() + "\"]}"), denied.body());
    // It is a failure as every denial.
    assertEquals(8, left(day, "a"));
    try {
      assertTrue(!get("/committed").body().contains("violated"));
    } catch (java.io.IOException e) {
      // The container cuts the response.
    }
  }

  @Test
  void sends_the_fields_of_nested_filters() throws Exception {
    Rule outer = Rule.fixed(name("outer"), 9, MINUTE);
    Rule inner = Rule.fixed(name("inner"), 1, MINUTE);
    serve(this::respond, limiting(limiter, outer).build(), limiting(limiter, inner).build());
    for (int status : List.of(200, 429)) {
      HttpResponse<String> response = get("/");
      assertEquals(status, response.statusCode());
      for (String name : List.of("RateLimit", "RateLimit-Policy")) {
        String both = field(response, name);
        assertTrue(both.indexOf(outer.name()) < both.indexOf(inner.name()), both);
        assertTrue(both.contains(outer.name()), both);
      }
    }
    assertEquals(7, left(outer, "a"));
  }

  @Test
  void gives_back_what_does_not_count() throws Exception {
    Rule login = Rule.fixed(name("login"), 3, MINUTE).count(Count.FAILURES);
    Rule thrown =
        Rule.fixed(name("thrown"), 3, MINUTE)
            .count(
                Count.when(
                    status -> {
                      throw new IllegalStateException("a count fails");
                    }));
    Function<HttpServletRequest, HttpServletRequest> none = request -> request;
    serve(
        (request, response) -> {
          switch (none.apply(request).getRequestURI()) {
            case "/thrown" -> LeaseTest.sneak(new Exception("a checked one, as of Kotlin"));
            case "/error" -> response.sendError(403);
            case "/reset" -> {
              response.setStatus(403);
              response.reset();
            }
            default -> response.setStatus(204);
          }
        },
        limiting(limiter, login).rule(thrown).build());
    assertStatus(204, "/");
    awaitLeft(3, login, "a");
    assertEquals(2, left(thrown, "a"));
    limiter.forget(thrown.of("a"));
    assertStatus(200, "/reset");
    awaitLeft(3, login, "a");
    assertStatus(403, "/error");
    limiter.forget(thrown.of("a"));
    assertStatus(500, "/thrown");
    assertEquals(1, left(login, "a"));
  }

  @Test
  void gives_back_a_failed_login_to_a_backoff_that_counts_failures() throws Exception {
    Rule login =
        Rule.backoff(name("login"), 1, MINUTE, MINUTE, MINUTE.multipliedBy(2))
            .count(Count.FAILURES);
    serve(
        (request, response) -> response.setStatus(Integer.parseInt(request.getQueryString())),
        limiting(limiter, login).build());
    assertStatus(200, "/?200");
    redisthrottle.lettuce.Server.await(
        "the attempt is back", () -> limiter.peek(login.of("a")).allowed());
    assertStatus(401, "/?401");
    assertStatus(429, "/?200");
  }

  @Test
  void responds_to_failures_with_500_or_by_the_function_of_the_application() throws Exception {
    Rule day = Rule.fixed(name("day"), 9, MINUTE);
    ThrottleFilterBuilder options = limiting(limiter, day);
    options.cost(request -> thrownAt(request, "/cost") == null ? 1 : 0);
    options.skip(request -> thrownAt(request, "/skip") != null);
    options.tag(request -> thrownAt(request, "/tag"));
    serve(this::respond, options.build());
    for (String path : List.of("/cost", "/skip", "/tag")) {
      HttpResponse<String> failed = get(path);
      assertEquals(500, failed.statusCode(), path);
      assertEquals("application/problem+json", field(failed, "Content-Type"));
    }
    container.stop();
    serve(
        this::respond,
        options
            .onFailure(
                (request, response, failure) -> {
                  if (request.getQueryString() != null) {
                    throw new IllegalStateException("the hook fails");
                  }
                  response.setStatus(502);
                })
            .build());
    assertStatus(502, "/cost");
    assertStatus(500, "/cost?throw");
    assertEquals(0, runs.get());
    assertEquals(9, left(day, "a"));
    assertStatus(200, "/");
  }

  private static String thrownAt(HttpServletRequest request, String path) {
    if (request.getRequestURI().equals(path)) {
      throw new IllegalArgumentException("a function fails");
    }
    return null;
  }

  @Test
  void responds_with_500_after_the_limiter_is_closed() throws Exception {
    Limiter closed = limiterOf(redis.uri()).build();
    serve(this::respond, limiting(closed, jobs).build());
    assertStatus(200, "/");
    awaitFree();
    closed.close();
    assertStatus(500, "/");
    assertEquals(1, runs.get());
  }

  @Test
  void rejects_invalid_options_when_it_is_built() {
    Rule api = Rule.gcra("api", 1, 1, MINUTE);
    ThrottleFilterBuilder none = ThrottleFilter.builder(limiter);
    assertThrows(InvalidArgumentException.class, none::build);
    assertThrows(InvalidArgumentException.class, () -> none.rule(api).rule(api));
    assertThrows(InvalidArgumentException.class, () -> none.degradedHeader("a b"));
    assertThrows(InvalidArgumentException.class, () -> none.trustedProxies(List.of("10.0.0")));
    List<HeaderStyle> unknown = Collections.singletonList(null);
    assertThrows(InvalidArgumentException.class, () -> none.headers(unknown));
    assertThrows(InvalidArgumentException.class, () -> jobs.count(Count.FAILURES));
    try (Limiter local = unreachable().onError(OnError.LOCAL).build()) {
      ThrottleFilterBuilder options = ThrottleFilter.builder(local).rule(api);
      assertThrows(InvalidArgumentException.class, () -> options.rule(jobs));
      assertThrows(InvalidArgumentException.class, () -> options.anonymous(jobs));
    }
  }
}
