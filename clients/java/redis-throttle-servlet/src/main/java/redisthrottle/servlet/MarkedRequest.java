package redisthrottle.servlet;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A request whose header comes from the limiter alone. */
final class MarkedRequest extends HttpServletRequestWrapper {
  private final String name;
  private final @Nullable String value;

  /** Makes a request with a value of a header; without it if the value is null. */
  MarkedRequest(HttpServletRequest request, String name, @Nullable String value) {
    super(request);
    this.name = name;
    this.value = value;
  }

  @Override
  public @Nullable String getHeader(String header) {
    return name.equalsIgnoreCase(header) ? value : super.getHeader(header);
  }

  @Override
  public Enumeration<String> getHeaders(String header) {
    if (!name.equalsIgnoreCase(header)) {
      return super.getHeaders(header);
    }
    return Collections.enumeration(value == null ? List.of() : List.of(value));
  }

  @Override
  public int getIntHeader(String header) {
    if (!name.equalsIgnoreCase(header)) {
      return super.getIntHeader(header);
    }
    return value == null ? -1 : Integer.parseInt(value);
  }

  @Override
  public long getDateHeader(String header) {
    if (!name.equalsIgnoreCase(header)) {
      return super.getDateHeader(header);
    }
    if (value == null) {
      return -1;
    }
    throw new IllegalArgumentException(name + " is no date");
  }

  @Override
  public Enumeration<String> getHeaderNames() {
    List<String> names = Collections.list(super.getHeaderNames());
    names.removeIf(name::equalsIgnoreCase);
    if (value != null) {
      names.add(name);
    }
    return Collections.enumeration(names);
  }
}
