package redisthrottle;

import java.time.Duration;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * Reports a decision, a charge, a refund, the end of an item of an admission, or a rejection.
 *
 * @param kind the kind of the event
 * @param decision null if the call was rejected, or got no final reply at the end of an admission
 * @param rule the rule that decided; of a rejected call, its first
 * @param keyHash 16 hexadecimal digits of the subject's HMAC, under the limiter's secret or a
 *     random key of the process
 * @param latency 0 if no call was sent
 * @param degraded true if {@link OnError} decided
 * @param error the error of a rejected call, or of an end that failed; otherwise null
 */
public record Event(
    EventKind kind,
    @Nullable Decision decision,
    Rule rule,
    String keyHash,
    Duration latency,
    boolean degraded,
    @Nullable RuntimeException error) {

  /** The kind of an event. */
  public enum EventKind {
    CHECK,
    PEEK,
    CHARGE,
    REFUND,
    LEASE,
    COMMIT,
    CANCEL,
    REJECTED;

    /** Returns the name that all clients use, such as {@code check}. */
    public String word() {
      return name().toLowerCase(Locale.ROOT);
    }
  }
}
