package redisthrottle;

import org.jspecify.annotations.Nullable;

/**
 * Thrown by calls without a final reply, which is a decision or a rejection, unless {@link OnError}
 * decides them. One that a blocking method throws has the stack trace of its caller. {@link
 * Decision#error} has none, because it would cost more than the call.
 */
public final class UnavailableException extends RuntimeException {
  private static final String UNSENT = "not sent: ";

  private final Reason reason;
  private final boolean isSent;

  private UnavailableException(
      Reason reason, String message, @Nullable Throwable cause, boolean isSent, boolean hasTrace) {
    super(message, cause, hasTrace, hasTrace);
    this.reason = reason;
    this.isSent = isSent;
  }

  /** Returns the error of a call that left this process. */
  static UnavailableException sent(Reason reason, String message, @Nullable Throwable cause) {
    return new UnavailableException(reason, message, cause, true, false);
  }

  /** Returns the error of a call that was not sent. */
  static UnavailableException unsent(Reason reason, String message, @Nullable Throwable cause) {
    return new UnavailableException(reason, UNSENT + message, cause, false, false);
  }

  /** Returns the error of a dial as one of a call that was not sent. */
  UnavailableException unsent() {
    return isSent ? unsent(reason, String.valueOf(getMessage()), getCause()) : this;
  }

  /** Returns the error with the stack trace of this thread. Other callers may have the original. */
  UnavailableException traced() {
    return new UnavailableException(reason, String.valueOf(getMessage()), getCause(), isSent, true);
  }

  /** Returns the reason that there is no final reply. */
  public Reason reason() {
    return reason;
  }

  /** Returns true if the command may have run on the server. */
  public boolean mayHaveRun() {
    return isSent && reason != Reason.SERVER;
  }
}
