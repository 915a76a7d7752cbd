package redisthrottle;

import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Thrown if a lease, a reservation or an admission was denied. In the handler of a request the
 * filters of this project respond to it as to their own denial.
 */
public final class DeniedException extends RuntimeException {
  /** The longest chain of causes that is read, because a chain may be a circle. */
  private static final int CAUSES_MAX = 16;

  private final transient Decision decision;

  DeniedException(Decision decision) {
    super("denied: " + decision);
    this.decision = decision;
  }

  /** Returns the denial among an exception and its causes; null if there is none. */
  public static @Nullable DeniedException in(@Nullable Throwable thrown) {
    Throwable one = thrown;
    for (int left = CAUSES_MAX; one != null && left > 0; left--) {
      if (one instanceof DeniedException denied) {
        return denied;
      }
      one = one.getCause();
    }
    return null;
  }

  /** Returns the denial. */
  public Decision decision() {
    return decision;
  }

  /**
   * Returns the status of the response to a request that needed the permit: 429; 413 if a retry
   * never helps; 403 for a ban; 503 if {@link OnError} decided.
   */
  public int status() {
    return decision.problem().status();
  }

  /**
   * Returns the fields of that response: those of {@link Decision#headers()}, and {@code
   * Cache-Control: no-store}.
   */
  public Map<String, String> headers() {
    Map<String, String> all = new LinkedHashMap<>(decision.headers());
    all.put("Cache-Control", "no-store");
    return all;
  }
}
