package redisthrottle.middleware;

import java.io.EOFException;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.Locale;
import java.util.Set;

/** Recognizes the exceptions by which a web server reports that its client is gone. */
public final class ClientGone {
  /** The names of the exceptions of Tomcat, Jetty, Reactor Netty and Spring. */
  private static final Set<String> NAMES =
      Set.of(
          "AbortedException",
          "AsyncRequestNotUsableException",
          "ClientAbortException",
          "CloseNowException",
          "EofException");

  /** The names of Spring's exceptions of a request that the application itself made. */
  private static final Set<String> OUTGOING =
      Set.of("ResourceAccessException", "RestClientException", "WebClientRequestException");

  /** The longest chain of causes that is read, because a chain may be a circle. */
  private static final int CAUSES_MAX = 16;

  private ClientGone() {}

  /**
   * Returns true if an exception, or one of its causes, reports that the client closed or reset its
   * connection. Those of an application that lost a connection of its own look alike, and are taken
   * for it unless they are inside of an exception of Spring's clients: such a request counts.
   */
  public static boolean isReportedBy(Throwable thrown) {
    Throwable one = thrown;
    for (int left = CAUSES_MAX; one != null && left > 0; left--) {
      String name = one.getClass().getSimpleName();
      if (OUTGOING.contains(name)) {
        return false;
      }
      if (one instanceof EOFException
          || one instanceof ClosedChannelException
          || NAMES.contains(name)
          || one instanceof IOException && isReset(one.getMessage())) {
        return true;
      }
      one = one.getCause();
    }
    return false;
  }

  private static boolean isReset(String message) {
    String text = String.valueOf(message).toLowerCase(Locale.ROOT);
    return text.contains("broken pipe") || text.contains("connection reset");
  }
}
