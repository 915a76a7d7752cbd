package redisthrottle.spring;

import java.util.Locale;
import java.util.function.Supplier;
import redisthrottle.InvalidArgumentException;

/** Thrown at the start for a wrong property. */
final class PropertyException extends RuntimeException {
  private final String property;

  /** Makes the error of a property, such as {@code throttle.url}. */
  PropertyException(String property, String problem) {
    super(property + ": " + problem);
    this.property = property;
  }

  String property() {
    return property;
  }

  /** Returns a value whose wrong arguments are the properties below a prefix. */
  static <T> T below(String prefix, Supplier<T> value) {
    try {
      return value.get();
    } catch (InvalidArgumentException e) {
      throw new PropertyException(prefix + "." + kebab(e.argument()), e.getMessage());
    }
  }

  /** Returns a value whose wrong arguments are those of one property. */
  static <T> T in(String property, Supplier<T> value) {
    try {
      return value.get();
    } catch (InvalidArgumentException e) {
      throw new PropertyException(property, e.getMessage());
    }
  }

  /** Returns the name that a property of a record has. */
  static String kebab(String argument) {
    return argument.replaceAll("([A-Z])", "-$1").toLowerCase(Locale.ROOT);
  }
}
