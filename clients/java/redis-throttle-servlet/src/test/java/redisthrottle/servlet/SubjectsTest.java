package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.net.Socket;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import org.junit.jupiter.api.Test;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Proxies;
import redisthrottle.Rule;

/** Runs the items of requests: subjects, rules, costs and tags. */
class SubjectsTest extends WebTest {
  private final Rule day = Rule.fixed(name("day"), 9, MINUTE);

  private void respond(HttpServletRequest request, HttpServletResponse response) {}

  /** A request from a peer of a case. */
  private static final class From extends HttpServletRequestWrapper {
    private final JsonNode input;

    From(HttpServletRequest request, JsonNode input) {
      super(request);
      this.input = input;
    }

    @Override
    public String getRemoteAddr() {
      return input.get("peer").isNull() ? null : input.get("peer").asText();
    }

    @Override
    public Enumeration<String> getHeaders(String name) {
      if (!name.equals("X-Forwarded-For")) {
        return super.getHeaders(name);
      }
      List<String> fields = new ArrayList<>();
      input.get("forwarded").forEach(field -> fields.add(field.asText()));
      return Collections.enumeration(fields);
    }
  }

  /** Returns the subject of a peer without an address; null if it has one. */
  private static String named(JsonNode peer) {
    String name = peer.isNull() ? "" : peer.asText();
    boolean hasAddress = Proxies.trust(List.of()).subject(name, List.of()) != null;
    return hasAddress ? null : "peer:";
  }

  @Test
  void reads_the_fields_of_a_proxy_in_their_order() throws Exception {
    serve(
        this::respond,
        ThrottleFilter.builder(limiter)
            .rule(day)
            .trustedProxies(List.of("127.0.0.0/8", "10.0.0.0/8"))
            .build());
    String head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nx-forwarded-for: 9.9.9.9\r\n";
    String two = "X-Forwarded-For: 192.0.2.7, 10.0.0.1\r\n\r\n";
    try (Socket socket = open(head + two)) {
      byte[] response = socket.getInputStream().readAllBytes();
      assertTrue(new String(response, StandardCharsets.ISO_8859_1).startsWith("HTTP/1.1 200"));
    }
    assertEquals(8, left(day, "192.0.2.7"));
  }

  private static String keyOf(HttpServletRequest request) {
    return switch (request.getRequestURI()) {
      case "/null" -> null;
      case "/empty" -> "";
      case "/half" -> "\ud800";
      case "/throw" -> throw new IllegalStateException("no key");
      default -> "a";
    };
  }

  @Test
  void responds_with_400_without_a_subject() throws Exception {
    Rule second = Rule.fixed(name("second"), 9, MINUTE);
    serve(
        this::respond,
        ThrottleFilter.builder(limiter)
            .rule(second, request -> "b")
            .rule(day, SubjectsTest::keyOf)
            .rule(jobs, request -> "a")
            .build());
    for (String path : List.of("/null", "/empty", "/half", "/throw")) {
      HttpResponse<String> response = get(path);
      assertEquals(400, response.statusCode(), path);
      assertEquals("application/problem+json", field(response, "Content-Type"));
      assertEquals("no-store", field(response, "Cache-Control"));
      assertTrue(isFree());
    }
    assertEquals(9, left(second, "b"));
    assertStatus(200, "/");
    assertEquals(8, left(second, "b"));
    assertEquals(8, left(day, "a"));
  }

  @Test
  void joins_headers_to_one_subject() throws Exception {
    serve(
        this::respond,
        ThrottleFilter.builder(limiter)
            .rule(day)
            .key(ThrottleFilter.keyOf("X-Tenant", "X-Api-Key"))
            .build());
    assertEquals(200, send(request("/").headers("X-Tenant", "a|b", "X-Api-Key", "c")).statusCode());
    assertEquals(200, send(request("/").headers("X-Tenant", "a", "X-Api-Key", "b|c")).statusCode());
    assertEquals(8, left(day, "a%7Cb|c"));
    assertEquals(8, left(day, "a|b%7Cc"));
    assertEquals(400, send(request("/").headers("X-Tenant", "a")).statusCode());
    String[] twice = {"X-Tenant", "a", "X-Tenant", "a", "X-Api-Key", "d"};
    assertEquals(400, send(request("/").headers(twice)).statusCode());
    // A byte is a character, in every container and language.
    String fields = "X-Tenant: \u00c3\u00a9\r\nX-Api-Key: c\r\n\r\n";
    try (Socket socket = open("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + fields)) {
      byte[] response = socket.getInputStream().readAllBytes();
      assertTrue(new String(response, StandardCharsets.ISO_8859_1).startsWith("HTTP/1.1 200"));
    }
    assertEquals(8, left(day, "\u00c3\u00a9|c"));
    assertThrows(InvalidArgumentException.class, ThrottleFilter::keyOf);
    assertThrows(InvalidArgumentException.class, () -> ThrottleFilter.keyOf("X-Tenant", "a b"));
  }

  @Test
  void limits_requests_without_a_subject_by_address() throws Exception {
    Rule anonymous = Rule.fixed(name("anonymous"), 9, MINUTE);
    serve(
        this::respond,
        ThrottleFilter.builder(limiter)
            .rule(day, request -> "b")
            .rule(jobs, SubjectsTest::keyOf)
            .anonymous(anonymous)
            .cost(request -> 2)
            .build());
    for (String path : List.of("/null", "/empty", "/half", "/throw")) {
      assertStatus(200, path);
    }
    assertEquals(9, left(day, "b"));
    assertEquals(1, left(anonymous, "127.0.0.1"));
    HttpResponse<String> denied = get("/null");
    assertEquals(429, denied.statusCode());
    assertTrue(denied.body().contains(anonymous.name()), denied.body());
    assertStatus(200, "/");
    assertEquals(7, left(day, "b"));
  }

  @Test
  void applies_the_rules_that_functions_return() throws Exception {
    Rule plan = Rule.fixed(name("plan"), 9, MINUTE);
    serve(
        this::respond,
        ThrottleFilter.builder(limiter)
            .key(request -> "a")
            .ruleOf(request -> request.getParameter("day") == null ? null : day)
            .ruleOf(request -> request.getParameter("plan") == null ? null : plan)
            .ruleOf(
                request -> {
                  if (request.getParameter("throw") != null) {
                    throw new IllegalStateException("no plan");
                  }
                  return null;
                })
            .build());
    HttpResponse<String> none = get("/");
    assertEquals(200, none.statusCode());
    assertEquals("", field(none, "RateLimit"));
    assertStatus(200, "/?plan");
    HttpResponse<String> both = get("/?day&plan");
    assertTrue(field(both, "RateLimit").contains(day.name()), field(both, "RateLimit"));
    assertEquals(8, left(day, "a"));
    assertEquals(7, left(plan, "a"));
    assertStatus(500, "/?day&throw");
    assertEquals(8, left(day, "a"));
  }

  @Test
  void takes_the_cost_of_a_request() throws Exception {
    serve(
        this::respond,
        ThrottleFilter.builder(limiter)
            .rule(jobs)
            .rule(day)
            .key(request -> "a")
            .cost(request -> Long.parseLong(request.getQueryString()))
            .build());
    assertStatus(200, "/?3");
    awaitFree();
    assertStatus(200, "/?0");
    awaitFree();
    assertEquals(6, left(day, "a"));
    for (String wrong : List.of("-1", "1000000000001", "x")) {
      assertStatus(wrong.equals("x") ? 500 : 400, "/?" + wrong);
      assertTrue(isFree());
    }
    assertStatus(413, "/?10");
    assertEquals(6, left(day, "a"));
  }

  @Test
  void puts_the_tag_into_the_keys() throws Exception {
    serve(
        this::respond,
        ThrottleFilter.builder(limiter)
            .rule(day)
            .rule(jobs)
            .key(request -> "a")
            .tag(
                request ->
                    "half".equals(request.getQueryString()) ? "\ud800" : request.getQueryString())
            .build());
    assertStatus(200, "/?acme");
    assertTrue(redis.send("KEYS", "*{acme}:" + day.name() + ":a").contains(day.name()));
    awaitFree();
    assertStatus(200, "/");
    assertStatus(200, "/?");
    awaitFree();
    assertEquals(7, left(day, "a"));
    assertStatus(400, "/?half");
  }
}
