package redisthrottle;

import java.util.Locale;

/**
 * The reason that there is no final reply. Unless it is {@link #SERVER}, a call that was sent may
 * have run.
 */
public enum Reason {
  /** The node is silent. */
  TIMEOUT,
  /** No connection could be opened in time, or it was lost. */
  CONNECTION,
  /** The server cannot decide now, such as while it loads its data. */
  SERVER,
  /** There are too many calls, or the reply came too late, while the node replies to others. */
  OVERLOADED,
  /** The circuit breaker is open. */
  CIRCUIT;

  /** Returns the name that all clients use, such as {@code timeout}. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
