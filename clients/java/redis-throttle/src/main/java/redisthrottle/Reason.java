package redisthrottle;

import java.util.Locale;

/** The reason that there is no answer. After a time-out or a loss the call may have run. */
public enum Reason {
  /** The deadline passed. */
  TIMEOUT,
  /** No connection could be opened, or it was lost. */
  CONNECTION,
  /** The server cannot decide now, such as while it loads its data. */
  SERVER,
  /** Too many calls are in flight. */
  OVERLOADED,
  /** The circuit breaker is open. */
  CIRCUIT;

  /** Returns the name that all clients use, such as {@code timeout}. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
