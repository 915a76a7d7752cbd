package redisthrottle;

import org.jspecify.annotations.Nullable;

/** Thrown by calls that {@link OnError} does not decide, if there is no answer. */
public final class UnavailableException extends RuntimeException {
  private final Reason reason;
  private final boolean isSent;
  private final boolean isQuiet;

  private UnavailableException(
      Reason reason, String message, @Nullable Throwable cause, boolean isSent, boolean isQuiet) {
    // No stack trace: it would show a thread of the driver, and cost more than the call.
    super(message, cause, false, false);
    this.reason = reason;
    this.isSent = isSent;
    this.isQuiet = isQuiet;
  }

  /** Returns the error of a call that left this process. */
  static UnavailableException sent(Reason reason, String message, @Nullable Throwable cause) {
    return new UnavailableException(reason, message, cause, true, false);
  }

  /** Returns the error of a call that was not sent. */
  static UnavailableException unsent(Reason reason, String message, @Nullable Throwable cause) {
    return new UnavailableException(reason, "not sent: " + message, cause, false, false);
  }

  /** Returns the error of a call that was not sent, and is no failure for the breaker. */
  static UnavailableException quiet(Reason reason, String message) {
    return new UnavailableException(reason, "not sent: " + message, null, false, true);
  }

  /** Returns the reason that there is no answer. */
  public Reason reason() {
    return reason;
  }

  /** Returns true if the command may have run on the server. */
  public boolean mayHaveRun() {
    return isSent && (reason == Reason.TIMEOUT || reason == Reason.CONNECTION);
  }

  boolean isSent() {
    return isSent;
  }

  boolean isQuiet() {
    return isQuiet;
  }
}
