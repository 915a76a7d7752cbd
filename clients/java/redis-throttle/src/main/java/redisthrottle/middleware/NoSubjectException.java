package redisthrottle.middleware;

/** Thrown for a request whose tag is not Unicode. A filter answers it as one without a subject. */
public final class NoSubjectException extends RuntimeException {
  NoSubjectException() {
    super("the tag of the request is not Unicode", null, false, false);
  }
}
