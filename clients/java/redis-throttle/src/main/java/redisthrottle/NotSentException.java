package redisthrottle;

import org.jspecify.annotations.Nullable;

/**
 * The error of a {@link Connection} that closed before it wrote a command. The limiter then sends
 * the command over the next connection, if the deadline permits.
 */
public final class NotSentException extends RuntimeException {
  /** Makes an error with that of the driver. */
  public NotSentException(@Nullable Throwable cause) {
    super("the connection closed before the command was written", cause, false, false);
  }
}
