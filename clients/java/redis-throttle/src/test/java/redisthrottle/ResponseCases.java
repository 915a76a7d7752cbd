package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import redisthrottle.middleware.MiddlewareBuilder;

/**
 * Runs the responses of cases.json through the middleware of a framework, in a server on this
 * machine.
 *
 * @param <R> the request of the framework
 * @param <B> the builder of the middleware
 */
public abstract class ResponseCases<R, B extends MiddlewareBuilder<R, B>> {
  private static final String PEER = "192.0.2.7";

  /** The parts of a request that the application saw; null if it did not run. */
  private volatile JsonNode application;

  /** Returns the options of a middleware whose denials have a status; null for the default. */
  protected abstract B builder(Limiter limiter, Integer onDenied);

  /** Returns the key function of several headers. */
  protected abstract Function<R, String> keyOf(String... headers);

  /**
   * Serves an application, and requests it once with header fields: names and values in turn. The
   * application calls {@link #served}, and responds with the status.
   */
  protected abstract HttpResponse<String> request(
      B options, String degradedHeader, int status, String... fields) throws Exception;

  /** Records what the application saw. */
  protected void served(Decision decision, String degraded) {
    ObjectNode seen = SharedCases.JSON.createObjectNode();
    seen.put("source", decision == null ? null : decision.source().word());
    seen.put("remaining", decision == null ? null : decision.remaining());
    seen.put("degraded", degraded);
    application = seen;
  }

  @TestFactory
  Stream<DynamicTest> responses() {
    List<DynamicTest> tests = new ArrayList<>();
    int without = 0;
    for (JsonNode one : SharedCases.ALL.get("responses")) {
      // In Java all rules of a middleware have one cost.
      if (one.get("input").get("limits").findValue("cost") != null) {
        without++;
      } else {
        tests.add(DynamicTest.dynamicTest(one.get("name").asText(), () -> run(one)));
      }
    }
    assertTrue(tests.size() >= 33 && without == 2, tests.size() + " cases, without " + without);
    return tests.stream();
  }

  private void run(JsonNode given) throws Exception {
    // The peer of this machine is another one than that of the case.
    JsonNode one = SharedCases.JSON.readTree(given.toString().replace(PEER, "127.0.0.1"));
    JsonNode input = one.get("input");
    JsonNode expected = one.get("expect");
    Queue<JsonNode> replies = new ConcurrentLinkedQueue<>();
    input.path("servers").forEach(replies::add);
    if (input.has("server")) {
      replies.add(input.get("server"));
    }
    CountDownLatch sent = new CountDownLatch(expected.get("sent").size());
    MemoryServer server =
        new MemoryServer(
            List.of(),
            (node, words) -> {
              sent.countDown();
              return replyOf(replies.poll());
            });
    application = null;
    HttpResponse<String> response;
    try (Limiter limiter = Limiter.builder(server).timeout(Duration.ofMinutes(1)).build()) {
      Integer onDenied = input.has("on_denied") ? input.get("on_denied").asInt() : null;
      B options = options(builder(limiter, onDenied), input);
      List<String> fields = new ArrayList<>();
      input
          .path("request")
          .properties()
          .forEach(field -> fields.addAll(List.of(field.getKey(), field.getValue().asText())));
      response =
          request(
              options,
              input.path("degraded_header").asText("X-Degraded"),
              input.path("responds").asInt(200),
              fields.toArray(String[]::new));
      assertTrue(sent.await(20, TimeUnit.SECONDS), () -> "sent " + server.sent);
    }
    compare(expected, response);
    // Nothing is sent after the limiter has closed.
    compareSent(expected.get("sent"), List.copyOf(server.sent));
  }

  private static CompletionStage<Object> replyOf(JsonNode given) {
    if (given == null) {
      return MemoryServer.error("ERR a command without a reply in the case");
    }
    return given.has("error")
        ? MemoryServer.error(given.get("error").asText())
        : MemoryServer.reply(SharedCases.reply(given));
  }

  private B options(B options, JsonNode input) {
    for (JsonNode limit : input.get("limits")) {
      Rule rule = SharedCases.rule(limit.get("rule"));
      if (limit.has("key")) {
        options.rule(rule, keyOf(texts(limit.get("key"))));
      } else {
        options.rule(rule);
      }
    }
    input.properties().forEach(one -> set(options, one.getKey(), one.getValue()));
    return options;
  }

  private void set(B options, String name, JsonNode value) {
    switch (name) {
      case "key" -> options.key(keyOf(texts(value)));
      case "cost" -> options.cost(request -> value.asLong());
      case "skip" -> options.skip(request -> value.asBoolean());
      case "tag" -> options.tag(request -> value.asText());
      case "anonymous" -> options.anonymous(SharedCases.rule(value));
      case "trusted_proxies" -> options.trustedProxies(List.of(texts(value)));
      case "degraded_header" -> options.degradedHeader(value.asText());
      case "headers" -> options.headers(SharedCases.styles(value));
      case "limits", "server", "servers", "request", "responds", "on_denied" -> {}
      default -> throw new AssertionError("the option " + name);
    }
  }

  private static String[] texts(JsonNode given) {
    List<String> all = new ArrayList<>();
    given.forEach(one -> all.add(one.asText()));
    return all.toArray(String[]::new);
  }

  private void compare(JsonNode expected, HttpResponse<String> response) throws Exception {
    assertEquals(expected.get("status").asInt(), response.statusCode(), response.body());
    JsonNode wanted = expected.get("application");
    if (wanted.isObject() && !wanted.has("degraded")) {
      ((ObjectNode) wanted).putNull("degraded");
    }
    assertEquals(String.valueOf(wanted), String.valueOf(application), "the application");
    if (expected.has("fields")) {
      // The case of names has no meaning in HTTP.
      Map<String, String> fields = new TreeMap<>();
      response
          .headers()
          .map()
          .forEach(
              (name, values) -> {
                if (name.matches("(?i)(x-)?ratelimit.*|retry-after|cache-control")) {
                  fields.put(name.toLowerCase(Locale.ROOT), String.join(", ", values));
                }
              });
      Map<String, String> wantedFields = new TreeMap<>();
      expected
          .get("fields")
          .properties()
          .forEach(
              one ->
                  wantedFields.put(one.getKey().toLowerCase(Locale.ROOT), one.getValue().asText()));
      assertEquals(wantedFields, fields);
    }
    if (expected.has("body")) {
      assertEquals(expected.get("body"), SharedCases.JSON.readTree(response.body()));
      assertEquals(
          "application/problem+json", response.headers().firstValue("Content-Type").orElse(""));
    }
  }

  private static void compareSent(JsonNode wanted, List<String> sent) {
    assertEquals(wanted.size(), sent.size(), sent.toString());
    for (int at = 0; at < sent.size(); at++) {
      assertTrue(sent.get(at).startsWith("server " + wanted.get(at).asText()), sent.get(at));
    }
  }
}
