package redisthrottle.gateway;

import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
import org.springframework.web.server.ResponseStatusException;
import redisthrottle.Decision;
import redisthrottle.Problem;

/**
 * An answer other than 429: 503 if the server did not answer and the rule denies such calls, 413 if
 * the call can never be allowed, 403 if the subject is banned, 400 for a request without a subject.
 * It has no subject and no key.
 */
public final class UndecidedException extends ResponseStatusException {
  private final HttpHeaders fields = new HttpHeaders();

  private UndecidedException(Problem problem) {
    super(HttpStatusCode.valueOf(problem.status()), problem.detail());
    fields.set("Cache-Control", "no-store");
  }

  @Override
  public HttpHeaders getHeaders() {
    return fields;
  }

  static UndecidedException of(Problem problem) {
    return new UndecidedException(problem);
  }

  static UndecidedException of(Decision denial) {
    UndecidedException made = new UndecidedException(denial.problem());
    denial.headers().forEach(made.fields::set);
    return made;
  }
}
