package redisthrottle.middleware;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.List;
import org.junit.jupiter.api.Test;

class ClientGoneTest {
  private static final IOException RESET = new IOException("Connection reset by peer");

  /** Has the name of Tomcat's exception. */
  private static final class ClientAbortException extends IOException {}

  /** Has the name of the exception of Spring's WebClient. */
  private static final class WebClientRequestException extends RuntimeException {
    WebClientRequestException(Throwable cause) {
      super(cause);
    }
  }

  @Test
  void recognizes_the_exceptions_of_a_client_that_is_gone() {
    List<Throwable> gone =
        List.of(
            RESET,
            new IOException("Broken pipe"),
            new EOFException(),
            new ClosedChannelException(),
            new ClientAbortException(),
            new IllegalStateException("of a framework", RESET));
    gone.forEach(one -> assertTrue(ClientGone.isReportedBy(one), one.toString()));
  }

  @Test
  void takes_other_failures_for_those_of_the_application() {
    List<Throwable> others =
        List.of(
            new IOException("no space left on device"),
            new IOException(),
            new IllegalStateException("Connection reset"),
            new WebClientRequestException(RESET));
    others.forEach(one -> assertFalse(ClientGone.isReportedBy(one), one.toString()));
  }
}
