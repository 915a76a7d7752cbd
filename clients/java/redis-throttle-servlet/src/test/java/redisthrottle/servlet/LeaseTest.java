package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.Filter;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.Socket;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import redisthrottle.CallInterruptedException;
import redisthrottle.Count;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Runs requests that hold a lease: it is released at their end, whatever that is. */
class LeaseTest extends WebTest {
  private final AtomicInteger runs = new AtomicInteger();

  private void hold(HttpServletRequest request, HttpServletResponse response) {
    runs.incrementAndGet();
    assertFalse(isFree());
  }

  @Test
  void releases_the_lease_after_exceptions_of_every_kind() throws Exception {
    serve(
        (request, response) -> {
          hold(request, response);
          switch (request.getRequestURI()) {
            case "/io" -> throw new IOException("a");
            case "/servlet" -> throw new ServletException("a");
            case "/runtime" -> throw new IllegalArgumentException("a");
            case "/error" -> throw new StackOverflowError("a");
            default -> sneak(new Exception("a checked one, as of Kotlin"));
          }
        },
        leasing().build());
    for (String path : List.of("/io", "/servlet", "/runtime", "/error", "/sneaky")) {
      assertStatus(500, path);
      awaitFree();
    }
    assertEquals(5, runs.get());
  }

  @Test
  void responds_before_the_release_has_a_reply() throws Exception {
    try (Limiter waiting = limiterOf(redis.uri()).timeout(Duration.ofHours(1)).build()) {
      serve(
          (request, response) -> {
            hold(request, response);
            redis.send("CLIENT", "PAUSE", "3600000", "WRITE");
          },
          ThrottleFilter.builder(waiting).rule(jobs).key(request -> "a").build());
      assertEquals(200, send(request("/").timeout(MINUTE)).statusCode());
      assertFalse(isFree());
      redis.send("CLIENT", "UNPAUSE");
    }
    // The end of the limiter has waited for the release.
    assertTrue(isFree());
  }

  /** Throws a checked exception that the signature does not name. */
  @SuppressWarnings("unchecked")
  static <E extends Throwable> void sneak(Throwable thrown) throws E {
    throw (E) thrown;
  }

  @Test
  void releases_the_lease_when_a_committed_response_fails() throws Exception {
    serve(
        (request, response) -> {
          hold(request, response);
          response.getWriter().write("a");
          response.flushBuffer();
          throw new ServletException("after the head");
        },
        leasing().build());
    try {
      get("/");
    } catch (IOException e) {
      // The container may cut the connection.
    }
    assertEquals(1, runs.get());
  }

  @Test
  void releases_the_lease_when_the_client_leaves_in_the_middle() throws Exception {
    serve(
        (request, response) -> {
          hold(request, response);
          for (; ; ) {
            response.getOutputStream().write(new byte[64 * 1024]);
            response.flushBuffer();
          }
        },
        leasing().build());
    try (Socket socket = open("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) {
      assertEquals('H', socket.getInputStream().read());
      assertFalse(isFree());
    }
    awaitFree();
  }

  @Test
  void releases_the_lease_when_the_client_leaves_before_it_sent_its_body() throws Exception {
    serve(
        (request, response) -> {
          hold(request, response);
          request.getInputStream().readAllBytes();
        },
        leasing().build());
    try (Socket socket = open("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\na")) {
      Server.await("the request runs", () -> runs.get() == 1);
      assertTrue(socket.isConnected());
    }
    awaitFree();
  }

  @Test
  void releases_the_outer_lease_when_an_inner_filter_does_not_go_on() throws Exception {
    Rule day = Rule.fixed(name("day"), 1, MINUTE);
    ThrottleFilter inner =
        ThrottleFilter.builder(limiter)
            .rule(day)
            .key(
                request -> {
                  assertFalse(isFree());
                  if (request.getRequestURI().equals("/none")) {
                    throw new IllegalStateException("no key");
                  }
                  return "a";
                })
            .cost(
                request -> {
                  if (request.getRequestURI().equals("/cost")) {
                    throw new IllegalStateException("no cost");
                  }
                  return 1;
                })
            .onFailure(
                (request, response, failure) -> {
                  throw new IllegalStateException("the hook fails", failure);
                })
            .build();
    Filter silent =
        (request, response, chain) -> {
          if (!((HttpServletRequest) request).getRequestURI().equals("/silent")) {
            chain.doFilter(request, response);
          }
        };
    serve(this::hold, leasing().build(), silent, inner);
    assertStatus(200, "/");
    awaitFree();
    assertStatus(429, "/denied");
    awaitFree();
    assertStatus(400, "/none");
    awaitFree();
    assertStatus(500, "/cost");
    awaitFree();
    assertStatus(200, "/silent");
    assertEquals(1, runs.get());
  }

  @Test
  void releases_the_lease_when_the_response_is_reset() throws Exception {
    serve(
        (request, response) -> {
          hold(request, response);
          response.reset();
          response.sendError(404);
        },
        leasing().build());
    assertStatus(404, "/");
  }

  @Test
  void gives_the_permit_back_when_the_thread_is_interrupted_before_the_call() throws Exception {
    Filter interrupting =
        (request, response, chain) -> {
          Thread.currentThread().interrupt();
          try {
            chain.doFilter(request, response);
          } finally {
            assertTrue(Thread.interrupted());
          }
        };
    AtomicReference<RuntimeException> seen = new AtomicReference<>();
    serve(
        this::hold,
        interrupting,
        leasing().onFailure((request, response, failure) -> seen.set(failure)).build());
    assertStatus(200, "/");
    assertTrue(seen.get() instanceof CallInterruptedException, () -> "" + seen.get());
    assertEquals(0, runs.get());
  }

  @Test
  void releases_the_lease_when_the_thread_is_interrupted_in_the_application() throws Exception {
    serve(
        (request, response) -> {
          hold(request, response);
          Thread.currentThread().interrupt();
        },
        (request, response, chain) -> {
          chain.doFilter(request, response);
          assertTrue(Thread.interrupted());
        },
        leasing().build());
    assertStatus(200, "/");
    awaitFree();
  }

  @Test
  void gives_the_permit_back_when_the_thread_is_interrupted_during_the_call() throws Exception {
    AtomicReference<Thread> worker = new AtomicReference<>();
    AtomicReference<RuntimeException> seen = new AtomicReference<>();
    Filter noting =
        (request, response, chain) -> {
          worker.set(Thread.currentThread());
          chain.doFilter(request, response);
          Thread.interrupted();
        };
    serve(
        this::hold,
        noting,
        leasing().onFailure((request, response, failure) -> seen.set(failure)).build());
    redis.send("CLIENT", "PAUSE", "20000", "WRITE");
    Thread caller = new Thread(() -> assertResponds("/"));
    caller.start();
    Server.await("the call waits", () -> isWaiting(worker.get()));
    worker.get().interrupt();
    caller.join();
    redis.send("CLIENT", "UNPAUSE");
    assertTrue(seen.get() instanceof CallInterruptedException, () -> "" + seen.get());
    assertEquals(0, runs.get());
  }

  private void assertResponds(String path) {
    try {
      get(path);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private static boolean isWaiting(Thread thread) {
    return thread != null
        && List.of(thread.getStackTrace()).toString().contains("redisthrottle.Entry.await");
  }

  @Test
  void releases_the_lease_when_the_filter_has_no_async_support() throws Exception {
    container =
        Container.start(
            (request, response) -> {
              hold(request, response);
              assertThrows(IllegalStateException.class, request::startAsync);
              request.startAsync();
            },
            List.of(leasing().build()),
            false);
    assertStatus(500, "/");
    assertEquals(1, runs.get());
  }

  @Test
  void responds_when_the_limiter_is_closed_during_the_request() throws Exception {
    Limiter closing = limiterOf(redis.uri()).build();
    Rule day = Rule.fixed(name("day"), 9, MINUTE).count(Count.when(status -> false));
    serve(
        (request, response) -> {
          hold(request, response);
          closing.close();
          response.getWriter().write("ok");
        },
        ThrottleFilter.builder(closing).rule(jobs).rule(day).key(request -> "a").build());
    HttpResponse<String> response = get("/");
    assertEquals(200, response.statusCode());
    assertEquals("ok", response.body());
    assertStatus(500, "/");
    assertEquals(1, runs.get());
    // Closed, the limiter cannot release it.
    limiter.forget(jobs.of("a"));
  }

  @Test
  void runs_the_application_without_a_permit_when_the_server_is_down() throws Exception {
    try (Limiter unreachable = unreachable().build()) {
      serve(
          (request, response) -> runs.incrementAndGet(),
          ThrottleFilter.builder(unreachable).rule(jobs).key(request -> "a").build());
      assertStatus(200, "/");
      assertStatus(200, "/");
      assertEquals(2, runs.get());
    }
  }
}
