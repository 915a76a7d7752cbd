package redisthrottle.webflux;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.Socket;
import java.time.Duration;
import java.util.Locale;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.http.HttpStatusCode;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Mono;
import reactor.core.publisher.SignalType;
import redisthrottle.Count;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Ends what requests took, however their responses end. */
class ReleaseTest {
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

  private static ThrottleWebFilterBuilder filter(Rule rule) {
    return ThrottleWebFilter.builder(limiter).rule(rule).key(exchange -> "a");
  }

  private static Rule lease(String name) {
    return Rule.lease(name, 1, Duration.ofMinutes(1));
  }

  private static void awaitLeft(Rule rule, long left) {
    Server.await(
        left + " units of " + rule.name(),
        () -> limiter.peek(rule.of("a").cost(0)).remaining() == left);
  }

  private static void awaitFree(Rule rule) {
    Server.await(rule.name() + " is free", () -> limiter.peek(rule.of("a")).allowed());
  }

  @Test
  void holds_the_lease_until_the_response_completes() {
    Rule jobs = lease("complete");
    try (Web web = Web.serve(filter(jobs).build())) {
      var pending = web.begin("/wait");
      Server.await("the request is served", () -> !web.served.isEmpty());
      assertEquals(429, web.get("/").statusCode());
      web.ending.complete(null);
      assertEquals(200, pending.join().statusCode());
      awaitFree(jobs);
    }
  }

  @Test
  void releases_the_lease_when_the_response_fails() {
    Rule jobs = lease("failure");
    try (Web web = Web.serve(filter(jobs).build())) {
      assertEquals(500, web.get("/failure").statusCode());
      awaitFree(jobs);
      assertThrows(AssertionError.class, () -> web.get("/cut"));
      awaitFree(jobs);
      assertEquals(500, web.get("/timeout").statusCode());
      awaitFree(jobs);
    }
  }

  @Test
  void releases_the_lease_when_an_outer_filter_gives_up() {
    Rule jobs = lease("given-up");
    WebFilter impatient =
        (exchange, chain) ->
            chain
                .filter(exchange)
                .timeout(
                    Mono.delay(Duration.ofMillis(50)),
                    Mono.fromRunnable(
                        () -> exchange.getResponse().setStatusCode(HttpStatusCode.valueOf(504))));
    try (Web web = Web.serve(impatient, filter(jobs).build())) {
      assertEquals(504, web.get("/wait").statusCode());
      awaitFree(jobs);
    }
  }

  @Test
  void releases_the_lease_when_the_client_goes_away_in_a_stream() throws IOException {
    Rule jobs = lease("stream");
    try (Web web = Web.serve(filter(jobs).build())) {
      try (Socket socket = web.open("/stream")) {
        Web.readUntil(socket, "part");
        assertFalse(limiter.peek(jobs.of("a")).allowed());
      }
      awaitFree(jobs);
    }
  }

  @Test
  void gives_back_what_does_not_count_by_status() {
    Rule login = Rule.fixed("login", 5, Duration.ofDays(1)).count(Count.FAILURES);
    try (Web web = Web.serve(filter(login).build())) {
      assertEquals(200, web.get("/").statusCode());
      awaitLeft(login, 5);
      assertEquals(401, web.get("/status").statusCode());
      assertEquals(500, web.get("/failure").statusCode());
      assertEquals(200, web.get("/").statusCode());
      awaitLeft(login, 3);
    }
  }

  @Test
  void gives_back_a_permit_that_arrives_after_the_cancellation() throws IOException {
    Rule jobs = lease("late");
    LinkedBlockingQueue<SignalType> ends = new LinkedBlockingQueue<>();
    WebFilter watch = (exchange, chain) -> chain.filter(exchange).doFinally(ends::add);
    ThrottleWebFilterBuilder options = filter(jobs);
    options.skip(exchange -> exchange.getRequest().getPath().value().equals("/skipped"));
    try (Web web = Web.serve(watch, options.build())) {
      int before = leases();
      redis.send("CLIENT", "PAUSE", "60000", "WRITE");
      Socket socket = web.open("/");
      Server.await(
          "the call waits", () -> redis.send("INFO", "clients").contains("blocked_clients:1"));
      // The only event loop is free.
      assertEquals(200, web.get("/skipped").statusCode());
      socket.close();
      Server.await("the cancellation", () -> ends.contains(SignalType.CANCEL));
      redis.send("CLIENT", "UNPAUSE");
      Server.await("the call is executed", () -> leases() == before + 1);
      awaitFree(jobs);
      assertEquals(1, web.served.size());
    }
  }

  /** Returns the number of calls of the server that took a permit or were denied one. */
  private static int leases() {
    String all = redis.send("INFO", "commandstats").toLowerCase(Locale.ROOT);
    int at = all.indexOf("cmdstat_rl.lease:calls=");
    return at < 0 ? 0 : Integer.parseInt(all.substring(all.indexOf('=', at) + 1).split(",")[0]);
  }

  @Test
  void leaves_no_permit_behind_when_many_clients_disconnect() throws IOException {
    Rule jobs = Rule.lease("many", 100, Duration.ofMinutes(1));
    AtomicInteger begun = new AtomicInteger();
    WebFilter counts =
        (exchange, chain) -> {
          begun.incrementAndGet();
          return chain.filter(exchange);
        };
    try (Web web = Web.serve(counts, filter(jobs).build())) {
      for (int at = 0; at < 60; at++) {
        int number = at;
        Socket socket = web.open("/wait");
        Server.await("the request begins", () -> begun.get() > number);
        socket.close();
      }
      Server.await("all permits are free", () -> limiter.peek(jobs.of("a")).remaining() == 99);
    }
  }
}
