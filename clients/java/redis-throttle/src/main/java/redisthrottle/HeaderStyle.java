package redisthrottle;

import java.util.Locale;

/** A form of the response fields that report a decision. */
public enum HeaderStyle {
  /**
   * {@code RateLimit-Policy} and {@code RateLimit} of draft-ietf-httpapi-ratelimit-headers-11,
   * whose names may still change. It is the default.
   */
  DRAFT_11,
  /** {@code RateLimit-Limit}, {@code -Remaining} and {@code -Reset}, in seconds from now. */
  DRAFT_6,
  /** The names of {@code DRAFT_6} after {@code X-}; the reset is Unix time in seconds. */
  X_RATELIMIT;

  /** Returns the name that all clients use, such as {@code draft-11}. */
  public String word() {
    return name().toLowerCase(Locale.ROOT).replace('_', '-');
  }
}
