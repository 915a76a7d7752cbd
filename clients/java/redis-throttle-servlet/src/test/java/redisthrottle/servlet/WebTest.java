package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import jakarta.servlet.Filter;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Handler;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import redisthrottle.Limiter;
import redisthrottle.LimiterBuilder;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Server;

/**
 * Runs filters in a container, with a server that has the module. After each test the permit of its
 * rule {@code jobs} under the subject {@code a} is free.
 */
abstract class WebTest {
  static final Duration MINUTE = Duration.ofMinutes(1);
  static final HttpClient HTTP = HttpClient.newHttpClient();
  private static final AtomicInteger NAMES = new AtomicInteger();
  // The containers log the exceptions of the tests: nothing is printed.
  private static final Logger ROOT = Logger.getLogger("");

  static Server redis;
  static RedisClient client;
  static Limiter limiter;

  /** A lease of one permit. */
  Rule jobs;

  Container container;

  @BeforeAll
  static void startServer() {
    for (Handler handler : ROOT.getHandlers()) {
      ROOT.removeHandler(handler);
    }
    redis = Server.withModule();
    client = RedisClient.create();
    limiter = limiterOf(redis.uri()).build();
    limiter.ready();
  }

  @AfterAll
  static void stopServer() {
    limiter.close();
    client.shutdown();
    redis.close();
  }

  @BeforeEach
  void makeRule() {
    jobs = Rule.lease(name("jobs"), 1, MINUTE);
  }

  @AfterEach
  void stopContainer() throws Exception {
    try {
      awaitFree();
    } finally {
      if (container != null) {
        container.stop();
      }
    }
  }

  static LimiterBuilder limiterOf(RedisURI uri) {
    return Limiter.builder(LettuceConnector.of(client, uri)).timeout(MINUTE);
  }

  /** Returns the options of a limiter whose server is unreachable. */
  static LimiterBuilder unreachable() {
    return limiterOf(RedisURI.create("127.0.0.1", 1));
  }

  /** Returns a name that no other test has. */
  static String name(String stem) {
    return stem + NAMES.incrementAndGet();
  }

  /** Returns the options of a filter with the permit of {@link #jobs}. */
  ThrottleFilterBuilder leasing() {
    return ThrottleFilter.builder(limiter).rule(jobs).key(request -> "a");
  }

  void serve(Container.Application application, Filter... filters) throws Exception {
    container = Container.start(application, List.of(filters), true);
  }

  HttpRequest.Builder request(String path) {
    return HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + container.port() + path));
  }

  HttpResponse<String> send(HttpRequest.Builder request) throws Exception {
    return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
  }

  HttpResponse<String> get(String path) throws Exception {
    return send(request(path));
  }

  /** Asserts the status of the response at a path. */
  void assertStatus(int status, String path) throws Exception {
    HttpResponse<String> response = get(path);
    assertEquals(status, response.statusCode(), response.body());
  }

  static String field(HttpResponse<?> response, String name) {
    return String.join(" | ", response.headers().allValues(name));
  }

  /** Sends a request over a socket of its own. */
  Socket open(String head) throws IOException {
    Socket socket = new Socket(InetAddress.getByName("127.0.0.1"), container.port());
    socket.setSoTimeout(60_000);
    socket.getOutputStream().write(head.getBytes(StandardCharsets.ISO_8859_1));
    return socket;
  }

  boolean isFree() {
    return limiter.peek(jobs.of("a")).allowed();
  }

  void awaitFree() {
    Server.await("the permit is free", this::isFree);
  }

  /** Waits until a subject has a number of units left, apart from that of the question. */
  static void awaitLeft(long left, Rule rule, String subject) {
    Server.await(
        left + " of " + rule.name(), () -> limiter.peek(rule.of(subject)).remaining() == left - 1);
  }

  static long left(Rule rule, String subject) {
    return limiter.peek(rule.of(subject)).remaining() + 1;
  }
}
