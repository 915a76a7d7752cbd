package redisthrottle.middleware;

/**
 * Thrown for a request whose tag is not Unicode, or whose cost no call can have. A filter responds
 * with 400, as to a request without a subject.
 */
public final class NoSubjectException extends RuntimeException {
  NoSubjectException(String problem) {
    super(problem, null, false, false);
  }
}
