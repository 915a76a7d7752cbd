package redisthrottle.webflux;

import static org.junit.jupiter.api.Assertions.assertEquals;

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
import org.springframework.web.server.WebFilter;
import redisthrottle.Count;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Proxy;
import redisthrottle.lettuce.Server;

/** Runs the filter next to clients that reset their connections. */
class ClientResetsTest {
  private static final int CLIENTS = 4;
  private static final int ABORTS = 150;
  private static final int LIMIT = 30;

  /** The silence, because other programs share the machine. */
  private static final Duration PATIENT = Duration.ofMillis(500);

  @Test
  void limits_a_client_next_to_others_that_reset_their_requests() {
    Rule rule = Rule.fixed("storm", LIMIT, Duration.ofHours(1));
    try (Server redis = Server.withModule();
        Proxy proxy = new Proxy(redis);
        Limiter limiter =
            Limiter.builder(LettuceConnector.of(Server.CLIENT, proxy.uri()))
                .silence(PATIENT)
                .build()) {
      limiter.ready();
      proxy.delayMs = 20;
      ThrottleWebFilter filter =
          ThrottleWebFilter.builder(limiter)
              .rule(rule)
              .key(exchange -> exchange.getRequest().getPath().value())
              .build();
      try (Web web = Web.serve(filter)) {
        List<CompletableFuture<Void>> storm = new ArrayList<>();
        for (int one = 0; one < CLIENTS; one++) {
          storm.add(CompletableFuture.runAsync(() -> abort(web)));
        }
        int allowed = 0;
        for (int request = 0; request < 2 * LIMIT; request++) {
          allowed += web.get("/good").statusCode() == 200 ? 1 : 0;
        }
        storm.forEach(CompletableFuture::join);
        assertEquals(LIMIT, allowed);
        assertEquals(0, limiter.counters().degraded());
      }
    }
  }

  @Test
  void limits_a_client_that_resets_its_requests_under_a_rule_that_counts_only_status_200()
      throws IOException {
    Queue<Integer> statuses = new ConcurrentLinkedQueue<>();
    IntPredicate isFine =
        status -> {
          statuses.add(status);
          return status == 200;
        };
    Rule rule = Rule.fixed("reset", LIMIT, Duration.ofHours(1)).count(Count.when(isFine));
    AtomicInteger ended = new AtomicInteger();
    WebFilter watching =
        (exchange, chain) -> chain.filter(exchange).doFinally(end -> ended.incrementAndGet());
    try (Server redis = Server.withModule();
        Limiter limiter = Redis.limiter(redis)) {
      ThrottleWebFilter filter =
          ThrottleWebFilter.builder(limiter).rule(rule).key(exchange -> "a").build();
      try (Web web = Web.serve(watching, filter)) {
        for (int request = 1; request <= 3 * LIMIT; request++) {
          int number = request;
          try (Socket socket = web.open("/wait")) {
            Server.await(
                "the request is served or denied",
                () -> web.served.size() == number || ended.get() == number);
            socket.setSoLinger(true, 0);
          }
          Server.await("the request ends", () -> ended.get() == number);
        }
        assertEquals(LIMIT, web.served.size());
        assertEquals(List.of(), List.copyOf(statuses));
        assertEquals(429, web.get("/").statusCode());
      }
    }
  }

  @Test
  void counts_a_request_whose_body_its_client_cut() throws IOException {
    Queue<Integer> statuses = new ConcurrentLinkedQueue<>();
    Rule rule = Rule.fixed("cut", LIMIT, Duration.ofHours(1)).count(Count.when(statuses::add));
    AtomicInteger ended = new AtomicInteger();
    WebFilter watching =
        (exchange, chain) -> chain.filter(exchange).doFinally(end -> ended.incrementAndGet());
    try (Server redis = Server.withModule();
        Limiter limiter = Redis.limiter(redis)) {
      ThrottleWebFilter filter =
          ThrottleWebFilter.builder(limiter).rule(rule).key(exchange -> "a").build();
      try (Web web = Web.serve(watching, filter)) {
        int cuts = 0;
        for (String path : List.of("/body", "/form", "/parts")) {
          for (String end : List.of("half", "close", "reset")) {
            cuts++;
            int number = cuts;
            try (Socket socket = web.openWith(head(path) + "--x\r\nConte")) {
              Server.await("the request is served", () -> web.served.size() == number);
              if (end.equals("half")) {
                socket.shutdownOutput();
                socket.getInputStream().readAllBytes();
              }
              socket.setSoLinger(end.equals("reset"), 0);
            }
            Server.await("the request ends", () -> ended.get() == number);
            assertEquals(List.of(), List.copyOf(statuses), path + " " + end);
          }
        }
        assertEquals(LIMIT - cuts, limiter.peek(rule.of("a").cost(0)).remaining());
      }
    }
  }

  private static String head(String path) {
    String type =
        path.equals("/parts")
            ? "multipart/form-data; boundary=x"
            : "application/x-www-form-urlencoded";
    return "POST "
        + path
        + " HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nContent-Type: "
        + type
        + "\r\n\r\n";
  }

  private static void abort(Web web) {
    for (int request = 0; request < ABORTS; request++) {
      try (Socket socket = web.open("/bad")) {
        // The close sends a reset.
        socket.setSoLinger(true, 0);
      } catch (IOException e) {
        throw new AssertionError(e);
      }
    }
  }
}
