package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.Filter;
import jakarta.servlet.ReadListener;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletInputStream;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.Socket;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntPredicate;
import org.junit.jupiter.api.Test;
import redisthrottle.Count;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Runs requests whose clients cut the body, with handlers that respond to this with a status. */
class WatchedRequestTest extends WebTest {
  private static final int LIMIT = 100;
  private static final List<String> ENDS = List.of("half", "close", "reset");

  private final Queue<Integer> statuses = new ConcurrentLinkedQueue<>();
  private final AtomicInteger runs = new AtomicInteger();
  private final Rule fine = Rule.fixed(name("cut"), LIMIT, MINUTE).count(Count.when(fine()));

  private IntPredicate fine() {
    return status -> {
      statuses.add(status);
      return status == 200;
    };
  }

  /** Responds with 400 if the body cannot be read. */
  private void respond(HttpServletRequest request, HttpServletResponse response)
      throws IOException, ServletException {
    runs.incrementAndGet();
    try {
      switch (request.getRequestURI()) {
        case "/stream" -> request.getInputStream().readAllBytes();
        case "/bytes" -> readBytes(request.getInputStream());
        case "/reader" -> request.getReader().lines().count();
        case "/chars" -> readChars(request);
        case "/async" -> readAsync(request, response);
        case "/parts" -> request.getParts();
        case "/part" -> request.getPart("a");
        case "/head" -> {
          response.flushBuffer();
          request.getInputStream().readAllBytes();
        }
        default -> readForm(request, response);
      }
    } catch (IOException | ServletException | RuntimeException e) {
      response.setStatus(400);
    }
  }

  private static void readBytes(ServletInputStream in) throws IOException {
    while (in.read() >= 0) {
      continue;
    }
  }

  private static void readChars(HttpServletRequest request) throws IOException {
    while (request.getReader().read() >= 0) {
      continue;
    }
  }

  private static void readForm(HttpServletRequest request, HttpServletResponse response) {
    boolean isThere =
        switch (request.getRequestURI()) {
          case "/value" -> request.getParameter("b") != null;
          case "/values" -> request.getParameterValues("b") != null;
          case "/names" -> request.getParameterNames().hasMoreElements();
          default -> request.getParameterMap().containsKey("b");
        };
    response.setStatus(isThere ? 200 : 400);
  }

  private static void readAsync(HttpServletRequest request, HttpServletResponse response)
      throws IOException {
    AsyncContext context = request.startAsync();
    context.setTimeout(0);
    ServletInputStream in = request.getInputStream();
    in.setReadListener(
        new ReadListener() {
          @Override
          public void onDataAvailable() throws IOException {
            byte[] part = new byte[64];
            while (in.isReady() && in.read(part) >= 0) {
              continue;
            }
          }

          @Override
          public void onAllDataRead() {
            context.complete();
          }

          @Override
          public void onError(Throwable error) {
            response.setStatus(400);
            context.complete();
          }
        });
  }

  private static String head(String path) {
    String type =
        path.startsWith("/part")
            ? "multipart/form-data; boundary=x"
            : "application/x-www-form-urlencoded";
    return "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Type: " + type + "\r\n";
  }

  /** Sends ten bytes of a body, and ends it. Waits until the request has ended. */
  private void cut(String path, String end) throws IOException {
    int before = runs.get();
    String body = path.startsWith("/part") ? "--x\r\nConte" : "a=56789012";
    try (Socket socket = open(head(path) + "Content-Length: 100\r\n\r\n" + body)) {
      Server.await("the request runs", () -> runs.get() > before);
      switch (end) {
        case "half" -> {
          socket.shutdownOutput();
          socket.getInputStream().readAllBytes();
        }
        case "reset" -> socket.setSoLinger(true, 0);
        default -> {}
      }
    }
    awaitFree();
  }

  @Test
  void counts_a_request_whose_body_its_client_cut() throws Exception {
    serve(this::respond, leasing().rule(fine).build());
    int cuts = 0;
    for (String path :
        List.of(
            "/stream", "/bytes", "/reader", "/chars", "/async", "/parts", "/part", "/value",
            "/values", "/names", "/map")) {
      for (String end : ENDS) {
        cut(path, end);
        cuts++;
        assertEquals(List.of(), List.copyOf(statuses), path + " " + end);
      }
    }
    assertEquals(LIMIT - cuts, left(fine, "a"));
  }

  @Test
  void counts_a_request_whose_cut_body_an_outer_filter_has_read() throws Exception {
    Filter reading =
        (request, response, chain) -> {
          runs.incrementAndGet();
          try {
            assertNull(request.getParameter("b"));
          } catch (RuntimeException e) {
            // Tomcat 10 throws none.
          }
          chain.doFilter(request, response);
        };
    serve(this::respond, reading, leasing().rule(fine).build());
    cut("/map", "half");
    assertEquals(List.of(), List.copyOf(statuses));
    assertEquals(LIMIT - 1, left(fine, "a"));
  }

  @Test
  void decides_by_the_head_if_the_client_cut_the_body_after_it() throws Exception {
    serve(this::respond, leasing().rule(fine).build());
    cut("/head", "half");
    assertEquals(List.of(200), List.copyOf(statuses));
    assertEquals(LIMIT - 1, left(fine, "a"));
  }

  @Test
  void decides_by_the_status_if_the_whole_body_was_read() throws Exception {
    serve(this::respond, leasing().rule(fine).build());
    for (String path : List.of("/stream", "/reader", "/value")) {
      String head = head(path) + "Connection: close\r\nContent-Length: 3\r\n\r\n";
      try (Socket socket = open(head + "b=1")) {
        socket.getInputStream().readAllBytes();
      }
      awaitFree();
    }
    assertEquals(List.of(200, 200, 200), List.copyOf(statuses));
  }
}
