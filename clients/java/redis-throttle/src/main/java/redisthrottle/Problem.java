package redisthrottle;

import java.util.List;

/**
 * A body of {@code application/problem+json} (RFC 9457). It has no key and no subject.
 *
 * @param type the identifier of the problem's type
 * @param title a short text
 * @param status the status of the response
 * @param detail a sentence for a person
 * @param violatedPolicies the names of the rules that denied; otherwise empty
 */
public record Problem(
    String type, String title, int status, String detail, List<String> violatedPolicies) {
  private static final String QUOTA_EXCEEDED =
      "https://iana.org/assignments/http-problem-types#quota-exceeded";

  /** Returns the body of the response to a request that may come back after some seconds. */
  static Problem exceeded(long seconds, List<String> names) {
    String detail = "Come back in " + seconds + (seconds == 1 ? " second." : " seconds.");
    return new Problem(QUOTA_EXCEEDED, "Too Many Requests", 429, detail, names);
  }

  /** Returns the body of the response to a request without a subject, whose status is 400. */
  public static Problem noSubject() {
    return plain(400, "Bad Request", "The request does not say who it is from.");
  }

  /** Returns the body of the response to a request that could not be decided; its status is 500. */
  public static Problem undecided() {
    return plain(500, "Internal Server Error", "The rate limiter could not be asked.");
  }

  static Problem plain(int status, String title, String detail) {
    return new Problem("about:blank", title, status, detail, List.of());
  }

  /** Returns the body as JSON. */
  public String json() {
    StringBuilder text = new StringBuilder(160);
    text.append("{\"type\":\"").append(type);
    text.append("\",\"title\":\"").append(title);
    text.append("\",\"status\":").append(status);
    text.append(",\"detail\":\"").append(detail).append('"');
    if (!violatedPolicies.isEmpty()) {
      // The characters of a name need no escape.
      text.append(",\"violated-policies\":[\"");
      text.append(String.join("\",\"", violatedPolicies)).append("\"]");
    }
    return text.append('}').toString();
  }
}
