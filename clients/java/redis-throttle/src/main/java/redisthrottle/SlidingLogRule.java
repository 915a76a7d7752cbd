package redisthrottle;

import java.util.ArrayList;
import java.util.List;

/** A log of the calls in a window. */
public final class SlidingLogRule extends Rule {
  SlidingLogRule(Definition definition) {
    super(definition);
  }

  @Override
  Rule with(Definition other) {
    return new SlidingLogRule(other);
  }

  /**
   * Returns the rule with a number of parts of the window, from 16 to 65,536, for each of which the
   * server stores one entry if the limit is above that number. A call may then count for up to a
   * part longer. The default is the server's setting, which is 1024.
   */
  public SlidingLogRule slots(int parts) {
    Checks.integer("slots", parts, 16, 65_536);
    List<String> words = new ArrayList<>(definition.words.subList(0, 3));
    words.add("SLOTS");
    words.add(Integer.toString(parts));
    return new SlidingLogRule(definition.withWords(List.copyOf(words)));
  }
}
