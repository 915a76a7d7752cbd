package redisthrottle.servlet;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import redisthrottle.Decision;

/** A function that responds to denied requests. */
@FunctionalInterface
public interface OnDenied {
  /**
   * Responds to a request. The fields of the decision and {@code Cache-Control} are set; the status
   * is not.
   */
  void answer(HttpServletRequest request, HttpServletResponse response, Decision decision)
      throws IOException;
}
