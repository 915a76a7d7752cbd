package redisthrottle;

import org.jspecify.annotations.Nullable;

/**
 * Thrown if the server refused a command for good, or sent a reply that is not a decision. It is
 * thrown under every {@link OnError}, so that no limit is off unnoticed.
 */
public final class CommandRejectedException extends RuntimeException {
  private final String kind;

  CommandRejectedException(String kind, String message, @Nullable Throwable cause) {
    super(message, cause);
    this.kind = kind;
  }

  static CommandRejectedException notADecision() {
    return new CommandRejectedException("PROTOCOL", "the reply is not a decision", null);
  }

  /**
   * Returns the first word of the server's error, such as {@code WRONGTYPE}; {@code PROTOCOL} for a
   * reply that is not a decision.
   */
  public String kind() {
    return kind;
  }
}
