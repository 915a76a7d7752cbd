package redisthrottle.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.net.http.HttpResponse;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import redisthrottle.Count;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Runs dispatches and wrappers: a request counts once, and its mark cannot be forged. */
class DispatchTest extends WebTest {
  private static final String MARK = "X-Limiter-Degraded";
  private final Rule day = Rule.fixed(name("day"), 9, MINUTE).count(Count.FAILURES);
  private final AtomicInteger runs = new AtomicInteger();

  /** Responds with the values of the header by every method, as the application sees them. */
  private static void echo(HttpServletRequest request, HttpServletResponse response)
      throws IOException {
    String name = MARK.toLowerCase(Locale.ROOT);
    long listed =
        Collections.list(request.getHeaderNames()).stream().filter(MARK::equalsIgnoreCase).count();
    String seen = String.join(",", Collections.list(request.getHeaders(name)));
    assertEquals(seen.isEmpty() ? 0 : 1, listed);
    assertEquals(seen.isEmpty() ? null : seen, request.getHeader(MARK));
    assertEquals(seen.isEmpty() ? -1 : Integer.parseInt(seen), request.getIntHeader(MARK));
    assertEquals(seen.isEmpty() ? "none" : "dated", dated(request));
    assertEquals("kept", request.getHeader("X-Other"));
    response.getWriter().write(seen);
  }

  private static String dated(HttpServletRequest request) {
    try {
      return request.getDateHeader(MARK) == -1 ? "none" : "dated";
    } catch (IllegalArgumentException e) {
      return "dated";
    }
  }

  private void dispatch(HttpServletRequest request, HttpServletResponse response)
      throws jakarta.servlet.ServletException, IOException {
    runs.incrementAndGet();
    String to = request.getParameter("to");
    if (to == null || request.getDispatcherType() != DispatcherType.REQUEST) {
      echo(request, response);
      return;
    }
    switch (to) {
      case "forward" -> request.getRequestDispatcher("/there").forward(request, response);
      case "include" -> request.getRequestDispatcher("/there").include(request, response);
      case "async" -> request.startAsync().dispatch();
      case "async-there" -> request.startAsync().dispatch("/there");
      case "error" -> response.sendError(418);
      default -> throw new IllegalStateException(to);
    }
  }

  private static final List<String> WAYS =
      List.of("forward", "include", "async", "async-there", "error");

  @Test
  void counts_a_dispatched_request_once() throws Exception {
    Rule failing = Rule.fixed(name("failing"), 9, MINUTE);
    serve(this::dispatch, leasing().rule(day).rule(failing).build());
    int taken = 0;
    for (String way : WAYS) {
      HttpResponse<String> response = send(request("/?to=" + way).header("X-Other", "kept"));
      assertEquals(way.equals("error") ? 418 : 200, response.statusCode(), way + response.body());
      awaitFree();
      taken++;
      assertEquals(9 - taken, left(failing, "a"), way);
    }
    awaitLeft(8, day, "a");
    assertEquals(2 * WAYS.size(), runs.get());
  }

  @Test
  void hides_the_clients_degraded_header_in_every_dispatch() throws Exception {
    serve(this::dispatch, leasing().degradedHeader(MARK).build());
    assertMarks("");
    assertEquals("", marked("/"));
    container.stop();
    serve(this::dispatch, leasing().degradedHeader(MARK).skip(request -> true).build());
    assertMarks("");
  }

  @Test
  void marks_degraded_requests_in_every_dispatch() throws Exception {
    try (Limiter unreachable = unreachable().build()) {
      ThrottleFilter marking =
          ThrottleFilter.builder(unreachable).rule(day).degradedHeader(MARK).build();
      ThrottleFilter fine = ThrottleFilter.builder(limiter).rule(day).degradedHeader(MARK).build();
      for (List<Filter> filters :
          List.<List<Filter>>of(List.of(marking), List.of(marking, fine), List.of(fine, marking))) {
        serve(this::dispatch, filters.toArray(Filter[]::new));
        assertMarks("1");
        container.stop();
        container = null;
      }
    }
  }

  private void assertMarks(String expected) throws Exception {
    assertEquals(expected, marked("/"));
    for (String way : WAYS) {
      assertEquals(expected, marked("/?to=" + way), way);
      awaitFree();
    }
  }

  private String marked(String path) throws Exception {
    HttpResponse<String> response =
        send(request(path).header(MARK, "7").header(MARK, "8").header("X-Other", "kept"));
    assertTrue(List.of(200, 418).contains(response.statusCode()), path + response.body());
    return response.body();
  }

  @Test
  void counts_by_the_status_behind_a_response_wrapper() throws Exception {
    Filter wrapping =
        (request, response, chain) ->
            chain.doFilter(
                request,
                new HttpServletResponseWrapper((HttpServletResponse) response) {
                  @Override
                  public void setStatus(int status) {
                    super.setStatus(status == 200 ? 403 : status);
                  }
                });
    serve((request, response) -> response.setStatus(200), leasing().rule(day).build(), wrapping);
    assertStatus(403, "/");
    awaitFree();
    assertEquals(8, left(day, "a"));
  }

  @Test
  void tells_the_decision_to_the_error_page() throws Exception {
    serve(
        (request, response) -> {
          assertNotNull(ThrottleFilter.decisionOf(request));
          if (request.getDispatcherType() == DispatcherType.REQUEST) {
            response.sendError(418);
          } else {
            response.getWriter().write("page");
          }
        },
        leasing().rule(day).build());
    assertEquals("page", get("/").body());
    awaitFree();
    Server.await("the failure counts", () -> left(day, "a") == 8);
  }
}
