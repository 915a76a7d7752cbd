package redisthrottle.middleware;

/**
 * Thrown for a request whose tag is not Unicode, or whose cost no call can have. A filter answers
 * it as one without a subject, 400.
 */
public final class NoSubjectException extends RuntimeException {
  NoSubjectException(String problem) {
    super(problem, null, false, false);
  }
}
