package redisthrottle;

import org.jspecify.annotations.Nullable;

/** Thrown by calls that {@link OnError} does not decide, if there is no answer. */
public final class UnavailableException extends RuntimeException {
  private static final String UNSENT = "not sent: ";

  private final Reason reason;
  private final boolean isSent;

  private UnavailableException(
      Reason reason, String message, @Nullable Throwable cause, boolean isSent) {
    // No stack trace: it would show a thread of the driver, and cost more than the call.
    super(message, cause, false, false);
    this.reason = reason;
    this.isSent = isSent;
  }

  /** Returns the error of a call that left this process. */
  static UnavailableException sent(Reason reason, String message, @Nullable Throwable cause) {
    return new UnavailableException(reason, message, cause, true);
  }

  /** Returns the error of a call that was not sent. */
  static UnavailableException unsent(Reason reason, String message, @Nullable Throwable cause) {
    // The message may be that of a dial, which says so already.
    String text = message.startsWith(UNSENT) ? message : UNSENT + message;
    return new UnavailableException(reason, text, cause, false);
  }

  /** Returns the reason that there is no answer. */
  public Reason reason() {
    return reason;
  }

  /** Returns true if the command may have run on the server. */
  public boolean mayHaveRun() {
    return isSent && reason != Reason.SERVER;
  }
}
