package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;

/** An allowance per calendar period. */
public final class QuotaRule extends Rule {
  private static final Pattern ZONE = Pattern.compile("[A-Za-z0-9_+/-]+");

  QuotaRule(Definition definition) {
    super(definition);
  }

  @Override
  Rule with(Definition other) {
    return new QuotaRule(other);
  }

  /** Returns the rule in a time zone of the IANA database, such as {@code Europe/Berlin}. */
  public QuotaRule zone(String name) {
    if (!ZONE.matcher(Checks.present("zone", name)).matches()) {
      throw invalid("zone", "a time zone such as Europe/Berlin");
    }
    return new QuotaRule(definition.withWords(words(name, wordAfter("START"))));
  }

  /**
   * Returns the rule with another start of its periods: {@code mon} to {@code sun} of a week, 1 to
   * 31 of a month, 1 to 12 of a year.
   */
  public QuotaRule start(String of) {
    String form =
        switch (definition.words.get(2)) {
          case "week" -> "mon|tue|wed|thu|fri|sat|sun";
          case "month" -> "[1-9]|[12]\\d|3[01]";
          case "year" -> "[1-9]|1[0-2]";
          default -> "(?!)";
        };
    if (!Checks.present("start", of).toLowerCase(Locale.ROOT).matches(form)) {
      throw invalid("start", "mon to sun of a week, 1 to 31 of a month, 1 to 12 of a year");
    }
    return new QuotaRule(definition.withWords(words(wordAfter("ZONE"), of)));
  }

  private String wordAfter(String word) {
    int at = definition.words.indexOf(word);
    return at < 0 ? "" : definition.words.get(at + 1);
  }

  private List<String> words(String zone, String start) {
    List<String> words = new ArrayList<>(definition.words.subList(0, 3));
    if (!zone.isEmpty()) {
      words.addAll(List.of("ZONE", zone));
    }
    if (!start.isEmpty()) {
      words.addAll(List.of("START", start));
    }
    return List.copyOf(words);
  }
}
