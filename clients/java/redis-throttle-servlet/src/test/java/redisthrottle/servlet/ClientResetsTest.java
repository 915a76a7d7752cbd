package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntPredicate;
import org.junit.jupiter.api.Test;
import redisthrottle.Count;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Proxy;
import redisthrottle.lettuce.Server;

/** Runs the filter next to clients that reset their connections. */
class ClientResetsTest extends WebTest {
  private static final int CLIENTS = 4;
  private static final int ABORTS = 150;
  private static final int LIMIT = 30;

  /** The silence, because other programs share the machine. */
  private static final Duration PATIENT = Duration.ofMillis(500);

  @Test
  void limits_a_client_next_to_others_that_reset_their_requests() throws Exception {
    Rule rule = Rule.fixed(name("storm"), LIMIT, MINUTE);
    try (Proxy proxy = new Proxy(redis);
        Limiter limiter =
            Limiter.builder(LettuceConnector.of(client, proxy.uri())).silence(PATIENT).build()) {
      limiter.ready();
      proxy.delayMs = 20;
      serve(
          (request, response) -> response.getWriter().write("ok"),
          ThrottleFilter.builder(limiter).rule(rule).key(ClientResetsTest::subject).build());
      List<CompletableFuture<Void>> storm = new ArrayList<>();
      for (int one = 0; one < CLIENTS; one++) {
        storm.add(CompletableFuture.runAsync(this::abort));
      }
      int allowed = 0;
      for (int request = 0; request < 2 * LIMIT; request++) {
        int status = get("/good").statusCode();
        allowed += status == 200 ? 1 : 0;
      }
      storm.forEach(CompletableFuture::join);
      assertEquals(LIMIT, allowed);
      assertEquals(0, limiter.counters().degraded());
    }
  }

  @Test
  void limits_a_client_that_resets_its_requests_under_a_rule_that_counts_only_status_200()
      throws Exception {
    Queue<Integer> statuses = new ConcurrentLinkedQueue<>();
    IntPredicate isFine =
        status -> {
          statuses.add(status);
          return status == 200;
        };
    Rule rule = Rule.fixed(name("reset"), LIMIT, MINUTE).count(Count.when(isFine));
    AtomicInteger begun = new AtomicInteger();
    AtomicInteger ended = new AtomicInteger();
    AtomicInteger served = new AtomicInteger();
    Filter watching =
        (request, response, chain) -> {
          begun.incrementAndGet();
          try {
            chain.doFilter(request, response);
          } finally {
            ended.incrementAndGet();
          }
        };
    serve(
        (request, response) -> {
          served.incrementAndGet();
          request.getInputStream().readAllBytes();
        },
        watching,
        ThrottleFilter.builder(limiter).rule(rule).key(request -> "a").build());
    for (int request = 1; request <= 3 * LIMIT; request++) {
      int number = request;
      try (Socket socket = open("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n.")) {
        Server.await("the request begins", () -> begun.get() == number);
        socket.setSoLinger(true, 0);
      }
      Server.await("the request ends", () -> ended.get() == number);
    }
    assertEquals(LIMIT, served.get());
    assertEquals(List.of(), List.copyOf(statuses));
    assertStatus(429, "/");
  }

  private static String subject(HttpServletRequest request) {
    return request.getRequestURI();
  }

  private void abort() {
    for (int request = 0; request < ABORTS; request++) {
      try (Socket socket = open("GET /bad HTTP/1.1\r\nHost: a\r\n\r\n")) {
        // The close sends a reset.
        socket.setSoLinger(true, 0);
      } catch (IOException e) {
        throw new AssertionError(e);
      }
    }
  }
}
