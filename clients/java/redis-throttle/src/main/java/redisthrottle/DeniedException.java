package redisthrottle;

/** Thrown if a lease or an admission was denied. */
public final class DeniedException extends RuntimeException {
  private final transient Decision decision;

  DeniedException(Decision decision) {
    super("denied: " + decision);
    this.decision = decision;
  }

  /** Returns the denial. */
  public Decision decision() {
    return decision;
  }
}
