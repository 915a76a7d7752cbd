package redisthrottle;

import java.util.Locale;

/** The maker of a decision. */
public enum Source {
  /** The server decided. */
  SERVER,
  /** This process decided: by a prefetched permit, the denial cache or {@link OnError#LOCAL}. */
  LOCAL,
  /** The rule's {@link OnError} decided, because there was no final reply. */
  ERROR;

  /** Returns the name that all clients use, such as {@code server}. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
