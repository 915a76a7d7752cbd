package redisthrottle;

/** The decision on calls without a final reply. */
public enum OnError {
  /** Allows the call. It is the default. */
  ALLOW,
  /**
   * Enforces the limit in this process. It is not possible for a backoff, a quota, a lease, and a
   * policy without a default.
   */
  LOCAL,
  /** Denies the call. */
  DENY;

  /** Returns the strictest value: {@code DENY} before {@code LOCAL} before {@code ALLOW}. */
  static OnError strictest(Iterable<OnError> all) {
    OnError chosen = ALLOW;
    for (OnError one : all) {
      if (one.compareTo(chosen) > 0) {
        chosen = one;
      }
    }
    return chosen;
  }
}
