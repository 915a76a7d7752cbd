package redisthrottle;

import java.util.Locale;

/** The algorithm of a rule. */
public enum Kind {
  GCRA,
  TOKEN_BUCKET,
  LEAKY_BUCKET,
  FIXED,
  SLIDING,
  SLIDING_LOG,
  BACKOFF,
  QUOTA,
  LEASE,
  POLICY;

  /** Returns the name that all clients use, such as {@code token_bucket}. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
