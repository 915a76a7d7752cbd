package redisthrottle.servlet;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** A function that answers requests that could not be decided. */
@FunctionalInterface
public interface OnFailure {
  /** Answers. Nothing is set yet. */
  void answer(HttpServletRequest request, HttpServletResponse response, RuntimeException failure)
      throws IOException;
}
