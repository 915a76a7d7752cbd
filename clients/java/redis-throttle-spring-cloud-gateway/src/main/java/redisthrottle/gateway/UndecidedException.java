package redisthrottle.gateway;

import java.util.Map;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
import org.springframework.web.server.ResponseStatusException;
import redisthrottle.Problem;

/**
 * A response other than 429: 503 if the server did not reply and the rule denies such calls, 413 if
 * the call can never be allowed, 403 if the subject is banned, 400 for a request without a subject.
 * It has no subject and no key.
 */
public final class UndecidedException extends ResponseStatusException {
  private final transient Problem problem;
  private final HttpHeaders fields = new HttpHeaders();

  UndecidedException(Problem problem, Map<String, String> fields) {
    super(HttpStatusCode.valueOf(problem.status()), problem.detail());
    this.problem = problem;
    fields.forEach(this.fields::set);
    this.fields.set("Cache-Control", "no-store");
  }

  @Override
  public HttpHeaders getHeaders() {
    return fields;
  }

  /** Returns the body of the response. */
  public Problem problem() {
    return problem;
  }
}
