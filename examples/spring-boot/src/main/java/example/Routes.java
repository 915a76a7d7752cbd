package example;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RestController;
import redisthrottle.Decision;
import redisthrottle.servlet.ThrottleFilter;

/**
 * The routes. Their limits are in {@code application.yaml}, and that of {@code /me} in {@link
 * Plans}.
 */
@RestController
class Routes {
  private static final String ALICE = "Basic YWxpY2U6c2VjcmV0"; // alice:secret

  @Value("${example.export-rows}")
  int exportRows;

  /**
   * The units left and the source of the decision.
   *
   * @param remaining the units left
   * @param source {@code server}, {@code local} or {@code error}
   */
  record DecisionBody(long remaining, String source) {}

  @GetMapping({"/", "/search", "/report", "/me"})
  DecisionBody showDecision(HttpServletRequest request) {
    Decision d = Objects.requireNonNull(ThrottleFilter.decisionOf(request));
    return new DecisionBody(d.remaining(), d.source().word());
  }

  /** Checks a password. The filter refunds the attempt if the password is right. */
  @PostMapping("/login")
  @Nullable DecisionBody logIn(
      HttpServletRequest request,
      HttpServletResponse response,
      @RequestHeader(defaultValue = "") String authorization) {
    if (MessageDigest.isEqual(bytes(authorization), bytes(ALICE))) {
      return showDecision(request);
    }
    response.setStatus(HttpServletResponse.SC_UNAUTHORIZED);
    response.setHeader("WWW-Authenticate", "Basic realm=\"example\"");
    return null;
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Streams rows slowly. If the client disconnects, a flush throws. */
  @GetMapping("/export")
  void export(HttpServletResponse response) throws IOException, InterruptedException {
    response.setContentType("text/plain; charset=utf-8");
    for (int row = 0; row < exportRows; row++) {
      response.getOutputStream().write(bytes("row\n".repeat(100)));
      response.flushBuffer();
      Thread.sleep(100);
    }
  }
}
