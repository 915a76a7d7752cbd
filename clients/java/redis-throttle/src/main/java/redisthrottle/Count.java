package redisthrottle;

import java.util.function.IntPredicate;

/**
 * The responses of a middleware that count. Units of the others are given back. A request whose
 * client is gone before the head of the response always counts.
 */
public final class Count {
  /** Counts all responses. It is the default. */
  public static final Count ALL = new Count(status -> true);

  /**
   * Counts responses with a status of 400 or more. A backoff that counts failures limits failed
   * logins.
   */
  public static final Count FAILURES = new Count(status -> status >= 400);

  private final IntPredicate predicate;

  private Count(IntPredicate predicate) {
    this.predicate = predicate;
  }

  /** Returns a count of the responses whose status the predicate accepts. */
  public static Count when(IntPredicate predicate) {
    return new Count(Checks.present("predicate", predicate));
  }

  /** Returns true if a response with this status counts. */
  public boolean counts(int status) {
    return predicate.test(status);
  }
}
