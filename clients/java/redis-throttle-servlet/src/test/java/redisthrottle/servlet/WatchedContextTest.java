package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import redisthrottle.Rule;

/** Runs asynchronous requests whose clients leave: a lease lasts as long as the work may go on. */
class WatchedContextTest extends WebTest {
  /** Writes until the client has left, works until it may end, and then completes the request. */
  private static final class Streaming implements AsyncListener {
    final CountDownLatch hasFailed = new CountDownLatch(1);
    final CountDownLatch mayEnd = new CountDownLatch(1);

    /**
     * Zero when the container has reported the error or the end of the request. Tomcat reports no
     * end after a write that failed while the servlet returned. Jetty waits for the application.
     */
    final CountDownLatch isReported = new CountDownLatch(Container.isJetty() ? 0 : 1);

    volatile boolean completesOnError;

    void start(HttpServletRequest request, HttpServletResponse response) {
      AsyncContext context = request.startAsync();
      context.setTimeout(0);
      context.addListener(this);
      context.start(
          () -> {
            try {
              for (; ; ) {
                response.getOutputStream().write(new byte[64 * 1024]);
                response.flushBuffer();
              }
            } catch (IOException | RuntimeException e) {
              // A container may recycle the response, which then throws anything.
              hasFailed.countDown();
              end(context);
            }
          });
    }

    private void end(AsyncContext context) {
      try {
        mayEnd.await();
        context.complete();
      } catch (InterruptedException | IllegalStateException e) {
        // The container has completed it.
      }
    }

    @Override
    public void onComplete(AsyncEvent event) {
      isReported.countDown();
    }

    @Override
    public void onTimeout(AsyncEvent event) {}

    @Override
    public void onError(AsyncEvent event) {
      isReported.countDown();
      if (completesOnError) {
        event.getAsyncContext().complete();
      }
    }

    @Override
    public void onStartAsync(AsyncEvent event) {}
  }

  @Test
  void releases_the_lease_when_the_client_leaves_during_an_async_stream() throws Exception {
    Streaming streaming = new Streaming();
    streaming.mayEnd.countDown();
    serve(streaming::start, leasing().build());
    leave();
    awaitFree();
  }

  @Test
  void holds_the_lease_of_a_client_that_left_until_the_application_completes() throws Exception {
    Streaming streaming = new Streaming();
    serve(streaming::start, leasing().build());
    leave();
    streaming.hasFailed.await();
    streaming.isReported.await();
    assertFalse(isFree());
    streaming.mayEnd.countDown();
    awaitFree();
  }

  @Test
  void renews_the_lease_no_longer_once_the_client_has_left() throws Exception {
    assumeReportsWrites();
    jobs = Rule.lease(name("short"), 1, Duration.ofSeconds(3));
    Streaming streaming = new Streaming();
    serve(streaming::start, leasing().build());
    leave();
    streaming.hasFailed.await();
    streaming.isReported.await();
    // The application never completes.
    awaitFree();
  }

  @Test
  void releases_the_lease_when_a_listener_completes_the_request_of_a_client_that_left()
      throws Exception {
    assumeReportsWrites();
    Streaming streaming = new Streaming();
    streaming.completesOnError = true;
    serve(streaming::start, leasing().build());
    leave();
    awaitFree();
  }

  private static void assumeReportsWrites() {
    assumeFalse(Container.isJetty(), "Jetty reports a write that failed to its caller alone");
  }

  @Test
  void releases_the_lease_when_the_client_leaves_during_non_blocking_writes() throws Exception {
    serve(
        (request, response) -> {
          AsyncContext context = request.startAsync();
          context.setTimeout(0);
          ServletOutputStream out = response.getOutputStream();
          byte[] part = new byte[64 * 1024];
          out.setWriteListener(new AsyncTest.Writing(context, out, part, Integer.MAX_VALUE));
        },
        leasing().build());
    leave();
    awaitFree();
  }

  /** Reads the start of a response, and closes the connection. */
  private void leave() throws IOException {
    try (Socket socket = open("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) {
      byte[] head = socket.getInputStream().readNBytes(12);
      assertTrue(new String(head, StandardCharsets.US_ASCII).endsWith("200"));
      assertFalse(isFree());
    }
  }
}
