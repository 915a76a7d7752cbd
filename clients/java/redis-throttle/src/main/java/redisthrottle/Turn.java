package redisthrottle;

import org.jspecify.annotations.Nullable;

/** The sender of a call, as the line and a late reply need it. */
class Turn {
  /** A sender that knows nothing, and drops late replies. */
  static final Turn NONE = new Turn();

  /** True once the caller has gone and the command still has no reply. */
  boolean isDraining;

  /** Returns the denial that decides the call while there is no place for it; null without one. */
  @Nullable Decision known() {
    return null;
  }

  /**
   * Called when a command ends whose caller has gone.
   *
   * @param error the error, such as that of a connection that was closed; null for a reply
   */
  void late(@Nullable Object reply, @Nullable RuntimeException error) {}
}
