package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import redisthrottle.Count;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Runs asynchronous requests: what they took ends with them, once. */
class AsyncTest extends WebTest {
  private final LinkedBlockingQueue<AsyncContext> started = new LinkedBlockingQueue<>();

  /** A listener that responds to a time-out or an error. */
  private static final class Responding implements AsyncListener {
    private final int status;

    Responding(int status) {
      this.status = status;
    }

    @Override
    public void onComplete(AsyncEvent event) {}

    @Override
    public void onTimeout(AsyncEvent event) {
      respond(event);
    }

    @Override
    public void onError(AsyncEvent event) {
      respond(event);
    }

    private void respond(AsyncEvent event) {
      ((HttpServletResponse) event.getAsyncContext().getResponse()).setStatus(status);
      event.getAsyncContext().complete();
    }

    @Override
    public void onStartAsync(AsyncEvent event) {}
  }

  /** Starts and hands the context to the test. */
  private void start(HttpServletRequest request, HttpServletResponse response) {
    AsyncContext context = request.startAsync();
    context.setTimeout(0);
    started.add(context);
  }

  private CompletableFuture<Integer> begin(String path) {
    return HTTP.sendAsync(
            request(path).build(), java.net.http.HttpResponse.BodyHandlers.discarding())
        .thenApply(java.net.http.HttpResponse::statusCode);
  }

  private AsyncContext taken() throws InterruptedException {
    AsyncContext context = started.take();
    assertFalse(isFree());
    return context;
  }

  @Test
  void holds_the_lease_until_two_threads_complete_at_once() throws Exception {
    serve(this::start, leasing().build());
    for (int round = 0; round < 20; round++) {
      CompletableFuture<Integer> pending = begin("/");
      AsyncContext context = taken();
      CountDownLatch both = new CountDownLatch(2);
      Runnable completing =
          () -> {
            both.countDown();
            try {
              both.await();
              context.complete();
            } catch (InterruptedException | RuntimeException e) {
              // One of the two is late.
            }
          };
      Thread other = new Thread(completing);
      other.start();
      completing.run();
      other.join();
      assertEquals(200, pending.get());
      awaitFree();
    }
    assertEquals(0, limiter.counters().unsettled());
  }

  @Test
  void releases_the_lease_when_the_application_completes_before_it_returns() throws Exception {
    serve((request, response) -> request.startAsync().complete(), leasing().build());
    assertStatus(200, "/");
    awaitFree();
    assertStatus(200, "/");
  }

  @Test
  void releases_the_lease_after_the_container_responds_to_a_timeout() throws Exception {
    serve((request, response) -> request.startAsync().setTimeout(50), leasing().build());
    assertStatus(500, "/");
  }

  @Test
  void releases_the_lease_after_the_application_responds_to_a_timeout() throws Exception {
    Rule login = Rule.fixed(name("login"), 9, MINUTE).count(Count.FAILURES);
    serve(
        (request, response) -> {
          AsyncContext context = request.startAsync();
          context.setTimeout(50);
          int status = request.getRequestURI().equals("/fine") ? 200 : 503;
          context.addListener(new Responding(status));
        },
        leasing().rule(login).build());
    assertStatus(200, "/fine");
    awaitFree();
    awaitLeft(9, login, "a");
    assertStatus(503, "/");
    awaitFree();
    assertEquals(8, left(login, "a"));
  }

  @Test
  void releases_the_lease_after_a_timeout_that_is_dispatched() throws Exception {
    serve(
        (request, response) -> {
          if (request.getDispatcherType() == DispatcherType.ASYNC) {
            response.getWriter().write("late");
            return;
          }
          AsyncContext context = request.startAsync();
          context.setTimeout(50);
          context.addListener(
              new AsyncListener() {
                @Override
                public void onComplete(AsyncEvent event) {}

                @Override
                public void onTimeout(AsyncEvent event) {
                  event.getAsyncContext().dispatch("/late");
                }

                @Override
                public void onError(AsyncEvent event) {}

                @Override
                public void onStartAsync(AsyncEvent event) {}
              });
        },
        leasing().build());
    assertEquals("late", get("/").body());
  }

  @Test
  void releases_the_lease_when_the_application_throws_after_the_start() throws Exception {
    Rule login = Rule.fixed(name("login"), 9, MINUTE).count(Count.FAILURES);
    serve(
        (request, response) -> {
          request.startAsync().setTimeout(50);
          throw new IllegalStateException("after the start");
        },
        leasing().rule(login).build());
    // Tomcat cuts the connection, and HttpClient would send the request again. Jetty waits.
    try (Socket socket = open("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")) {
      String response =
          new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
      assertTrue(response.isEmpty() || response.startsWith("HTTP/1.1 500"), response);
    }
    awaitFree();
    assertEquals(8, left(login, "a"));
  }

  @Test
  void keeps_the_lease_over_dispatches_that_start_again() throws Exception {
    AtomicInteger runs = new AtomicInteger();
    serve(
        (request, response) -> {
          if (runs.incrementAndGet() <= 3) {
            start(request, response);
          } else {
            response.getWriter().write("done");
          }
        },
        leasing().build());
    CompletableFuture<Integer> pending = begin("/");
    taken().dispatch();
    taken().dispatch("/other");
    AsyncContext last = taken();
    assertEquals(429, get("/").statusCode());
    last.dispatch();
    assertEquals(200, pending.get());
    awaitFree();
    assertEquals(4, runs.get());
  }

  @Test
  void releases_the_lease_when_a_dispatched_request_throws() throws Exception {
    serve(
        (request, response) -> {
          if (request.getDispatcherType() == DispatcherType.ASYNC) {
            throw new IOException("dispatched");
          }
          if (request.getDispatcherType() == DispatcherType.REQUEST) {
            start(request, response);
          }
        },
        leasing().build());
    CompletableFuture<Integer> pending = begin("/");
    taken().dispatch();
    assertEquals(500, pending.get());
  }

  @Test
  void releases_the_lease_when_a_dispatched_request_starts_again_and_throws() throws Exception {
    serve(
        (request, response) -> {
          start(request, response);
          if (request.getDispatcherType() == DispatcherType.ASYNC) {
            request.getAsyncContext().setTimeout(50);
            throw new IOException("dispatched");
          }
        },
        leasing().build());
    // Tomcat cuts the connection, after which HttpClient would send the request again.
    try (Socket socket = open("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) {
      taken().dispatch();
      assertTrue(socket.isConnected());
      awaitFree();
    }
  }

  @Test
  void decides_the_count_when_the_request_is_complete() throws Exception {
    Rule login = Rule.fixed(name("login"), 9, MINUTE).count(Count.FAILURES);
    serve(this::start, leasing().rule(login).build());
    CompletableFuture<Integer> fine = begin("/");
    AsyncContext first = taken();
    assertEquals(8, left(login, "a"));
    first.complete();
    assertEquals(200, fine.get());
    awaitFree();
    awaitLeft(9, login, "a");
    CompletableFuture<Integer> failed = begin("/");
    AsyncContext second = taken();
    ((HttpServletResponse) second.getResponse()).sendError(403);
    second.complete();
    assertEquals(403, failed.get());
    awaitFree();
    assertEquals(8, left(login, "a"));
  }

  @Test
  void releases_the_leases_of_nested_filters() throws Exception {
    Rule outer = Rule.lease(name("outer"), 1, MINUTE);
    serve(
        this::start,
        ThrottleFilter.builder(limiter).rule(outer).key(request -> "a").build(),
        leasing().build());
    CompletableFuture<Integer> pending = begin("/");
    AsyncContext context = taken();
    assertFalse(limiter.peek(outer.of("a")).allowed());
    context.dispatch("/again");
    AsyncContext again = taken();
    again.complete();
    assertEquals(200, pending.get());
    Server.await("the outer permit is free", () -> limiter.peek(outer.of("a")).allowed());
  }

  @Test
  void releases_the_lease_after_non_blocking_writes() throws Exception {
    byte[] part = new byte[64 * 1024];
    serve(
        (request, response) -> {
          AsyncContext context = request.startAsync();
          ServletOutputStream out = response.getOutputStream();
          out.setWriteListener(new Writing(context, out, part, 40));
        },
        leasing().build());
    assertEquals(40 * part.length, get("/").body().length());
  }

  /** Writes parts while the client reads them. */
  record Writing(AsyncContext context, ServletOutputStream out, byte[] part, AtomicInteger left)
      implements WriteListener {
    Writing(AsyncContext context, ServletOutputStream out, byte[] part, int parts) {
      this(context, out, part, new AtomicInteger(parts));
    }

    @Override
    public void onWritePossible() throws IOException {
      while (out.isReady()) {
        if (left.getAndDecrement() <= 0) {
          context.complete();
          return;
        }
        out.write(part);
      }
    }

    @Override
    public void onError(Throwable problem) {
      context.complete();
    }
  }

  @Test
  void releases_the_lease_when_the_container_stops() throws Exception {
    Duration timeout = Duration.ofSeconds(20);
    serve(
        (request, response) -> {
          start(request, response);
          request.getAsyncContext().setTimeout(timeout.toMillis());
        },
        leasing().build());
    CompletableFuture<Integer> pending = begin("/");
    taken();
    container.stop();
    container = null;
    awaitFree();
    pending.cancel(true);
  }
}
