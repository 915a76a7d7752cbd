package redisthrottle.middleware;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import redisthrottle.InvalidArgumentException;

/** Joins several parts, such as a tenant and an API key, to one subject. */
public final class KeyParts {
  private KeyParts() {}

  /**
   * Joins the parts by {@code |}. In a part {@code %} becomes {@code %25} and {@code |} becomes
   * {@code %7C}, so that different parts never make the same subject. Returns null if a part is
   * null or empty.
   *
   * @throws InvalidArgumentException if there is no part
   */
  public static @Nullable String join(@Nullable String... parts) {
    if (parts == null || parts.length == 0) {
      throw new InvalidArgumentException("parts", "one or more parts of a key");
    }
    StringBuilder key = new StringBuilder();
    for (String part : parts) {
      if (part == null || part.isEmpty()) {
        return null;
      }
      key.append(key.length() == 0 ? "" : "|");
      key.append(part.replace("%", "%25").replace("|", "%7C"));
    }
    return key.toString();
  }

  /**
   * Returns the function that joins the values of request headers. A header that is missing or
   * empty, or that occurs several times, leaves no subject, because the client would choose which
   * one counts. For adapters.
   *
   * @param header returns the values of a request's header, one for each time that it occurs
   * @throws InvalidArgumentException if there is no name, or if one is no name of a header
   */
  public static <R> Function<R, @Nullable String> ofHeaders(
      BiFunction<R, String, List<String>> header, String... names) {
    if (names == null || names.length == 0 || !Arrays.stream(names).allMatch(KeyParts::isName)) {
      throw new InvalidArgumentException("headers", "one or more names of headers");
    }
    List<String> all = List.of(names);
    return request ->
        join(all.stream().map(name -> only(header.apply(request, name))).toArray(String[]::new));
  }

  private static @Nullable String only(List<String> values) {
    return values.size() == 1 ? values.get(0) : null;
  }

  /**
   * Returns true for a text that can be a subject or a tag: neither empty nor with half a surrogate
   * pair.
   */
  public static boolean isSubject(@Nullable String text) {
    return text != null && !text.isEmpty() && StandardCharsets.UTF_8.newEncoder().canEncode(text);
  }

  /** Returns true if a text can be the name of a header. */
  static boolean isName(@Nullable String name) {
    return name != null && name.matches("[A-Za-z0-9!#$%&'*+.^_`|~-]+");
  }
}
