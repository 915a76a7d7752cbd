package redisthrottle;

import java.util.List;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * Thrown if the server refused a command for good, or sent a reply that is not a decision. It is
 * thrown under every {@link OnError}, so that no limit is off unnoticed. The message is the
 * server's text and, in brackets, the rules of the call.
 */
public final class CommandRejectedException extends RuntimeException {
  private final String kind;

  CommandRejectedException(String kind, String message, @Nullable Throwable cause) {
    super(message, cause);
    this.kind = kind;
  }

  /** Returns the error with the lines of the rules whose call was rejected, without their keys. */
  CommandRejectedException naming(List<Rule> rules) {
    if (rules.isEmpty()) {
      return this;
    }
    String lines = rules.stream().map(Rule::toString).collect(Collectors.joining("; "));
    return new CommandRejectedException(kind, getMessage() + " [" + lines + "]", getCause());
  }

  /** Returns the error with the stack trace of this thread. Other callers may have the original. */
  CommandRejectedException traced() {
    return new CommandRejectedException(kind, String.valueOf(getMessage()), getCause());
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
