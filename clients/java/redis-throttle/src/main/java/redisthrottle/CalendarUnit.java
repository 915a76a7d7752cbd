package redisthrottle;

import java.util.Locale;

/** The period of a quota. */
public enum CalendarUnit {
  DAY,
  WEEK,
  MONTH,
  QUARTER,
  YEAR;

  String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
