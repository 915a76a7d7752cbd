package redisthrottle.servlet;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** A function that responds to requests that could not be decided. */
@FunctionalInterface
public interface OnFailure {
  /** Responds to a request. Nothing is set yet. */
  void answer(HttpServletRequest request, HttpServletResponse response, RuntimeException failure)
      throws IOException;
}
