package redisthrottle;

import java.time.Duration;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Validates arguments, and writes numbers as the server reads them. */
final class Checks {
  /** The largest limit and the largest cost. */
  static final long UNITS_MAX = 1_000_000_000_000L;

  /** The largest number of permits that one call fetches. */
  static final int PREFETCH_MAX = 10_000;

  static final Duration MILLISECOND = Duration.ofMillis(1);
  private static final Duration LONGEST = Duration.ofDays(366);
  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9._:/-]{1,64}");

  private Checks() {}

  static InvalidArgumentException invalid(String argument, String expected) {
    return new InvalidArgumentException(argument, expected);
  }

  static <T> T present(String argument, @Nullable T value) {
    if (value == null) {
      throw invalid(argument, "a value, not null");
    }
    return value;
  }

  static long integer(String argument, long value, long least, long most) {
    if (value < least || value > most) {
      throw invalid(argument, "an integer from " + least + " to " + most);
    }
    return value;
  }

  /** Throws unless the server takes the duration. */
  static Duration duration(String argument, @Nullable Duration given) {
    Duration d = present(argument, given);
    boolean isInRange = d.compareTo(MILLISECOND) >= 0 && d.compareTo(LONGEST) <= 0;
    if (!isInRange || d.getNano() % 1000 != 0) {
      throw invalid(argument, "a duration from 1 ms to 366 days, in whole microseconds");
    }
    return d;
  }

  static Duration between(
      String argument, @Nullable Duration given, Duration least, Duration most) {
    Duration d = present(argument, given);
    if (d.compareTo(least) < 0 || d.compareTo(most) > 0) {
      throw invalid(argument, "a duration from " + least + " to " + most);
    }
    return d;
  }

  static String name(String argument, @Nullable String name) {
    if (!isName(present(argument, name))) {
      throw invalid(argument, "1 to 64 of A-Z a-z 0-9 . _ : / -");
    }
    return name;
  }

  static boolean isName(@Nullable String name) {
    return name != null && NAME.matcher(name).matches();
  }

  /**
   * Writes a duration as the server reads it: in whole seconds, or else in milliseconds with up to
   * three decimals.
   */
  static String word(Duration d) {
    if (d.getNano() == 0) {
      return Long.toString(d.getSeconds());
    }
    long micros = d.getSeconds() * 1_000_000 + d.getNano() / 1000;
    String whole = Long.toString(micros / 1000);
    long rest = micros % 1000;
    if (rest == 0) {
      return whole + "ms";
    }
    String decimals = Long.toString(1000 + rest).substring(1).replaceAll("0+$", "");
    return whole + "." + decimals + "ms";
  }
}
