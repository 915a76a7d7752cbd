package redisthrottle;

import org.jspecify.annotations.Nullable;

/** An error reply, as the server wrote it. Adapters of drivers report it to the limiter. */
public final class ServerErrorException extends RuntimeException {
  /** Makes the error of a reply's text, and of the driver's error, if there is one. */
  public ServerErrorException(String message, @Nullable Throwable cause) {
    super(message, cause, false, false);
  }
}
