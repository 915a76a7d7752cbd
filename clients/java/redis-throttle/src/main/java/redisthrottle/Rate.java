package redisthrottle;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Units per period, such as 10 per minute. An invalid rate throws an {@link
 * InvalidArgumentException}.
 *
 * @param rate 1 to 10^12 units
 * @param period 1 ms to 366 days, in whole microseconds
 */
public record Rate(long rate, Duration period) {
  private static final String WORDS =
      "(?:([0-9]{1,16}) ?)?(seconds?|sec|s|minutes?|min|m|hours?|hr|h|days?|d)";
  private static final Pattern TEXT =
      Pattern.compile(
          "([0-9]{1,16})(?: ?/ ?| per )(?:"
              + WORDS
              + "|([0-9]{1,16}(?:\\.[0-9]{1,6})?)(ms|[smhd]))");
  private static final Pattern MONTHS_OR_YEARS = Pattern.compile("(?:.*[^a-z])?(?:month|year)s?");

  /** The units of time in milliseconds, by the first letter of their words. */
  private static final Map<Character, Long> MILLIS =
      Map.of('s', 1000L, 'm', 60_000L, 'h', 3_600_000L, 'd', 86_400_000L);

  /** Creates a rate. */
  public Rate {
    Checks.integer("rate", rate, 1, Checks.UNITS_MAX);
    Checks.duration("period", period);
  }

  /**
   * Reads a rate such as {@code 10/minute}, {@code 5 per 2 hours} or {@code 3/250ms}. The units are
   * seconds, minutes, hours and days ({@code second}, {@code sec}, {@code s} and so on), in lower
   * case. A month and a year differ in length, so only a {@link Rule#quota} counts them.
   *
   * <pre>{@code
   * Rate rate = Rate.of("5 per 2 hours");
   * System.out.println(rate.rate() + " in " + rate.period()); // 5 in PT2H
   * }</pre>
   */
  public static Rate of(String text) {
    Matcher found = TEXT.matcher(Checks.present("rate", text));
    if (!found.matches()) {
      boolean isQuota = MONTHS_OR_YEARS.matcher(text).matches();
      String other = isQuota ? "Rule.quota for months and years" : "text such as 10/minute";
      throw Checks.invalid("rate", other);
    }
    return new Rate(Long.parseLong(found.group(1)), period(found));
  }

  private static Duration period(Matcher found) {
    String word = found.group(3);
    boolean isWord = word != null;
    String count = isWord ? found.group(2) : found.group(4);
    String unit = isWord ? word : found.group(5);
    long millis = unit.equals("ms") ? 1 : MILLIS.get(unit.charAt(0));
    BigDecimal periodMs = new BigDecimal(count == null ? "1" : count);
    BigDecimal nanos = periodMs.multiply(BigDecimal.valueOf(millis)).movePointRight(6);
    BigDecimal longest = BigDecimal.valueOf(Long.MAX_VALUE);
    return Duration.ofNanos(nanos.min(longest).longValueExact());
  }

  /** Returns the rate as {@link #of} reads it. */
  @Override
  public String toString() {
    String word = Checks.word(period);
    return rate + "/" + (word.endsWith("ms") ? word : word + "s");
  }
}
