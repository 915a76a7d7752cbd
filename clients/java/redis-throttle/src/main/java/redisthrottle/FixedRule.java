package redisthrottle;

import java.util.ArrayList;
import java.util.List;

/** A counter per window. */
public final class FixedRule extends Rule {
  FixedRule(Definition definition) {
    super(definition);
  }

  @Override
  Rule with(Definition other) {
    return new FixedRule(other);
  }

  /** Returns the rule with windows that begin at multiples of their length since 1970. */
  public FixedRule aligned() {
    if (definition.words.contains("ALIGNED")) {
      return this;
    }
    List<String> words = new ArrayList<>(definition.words);
    words.add("ALIGNED");
    return new FixedRule(definition.withWords(List.copyOf(words)));
  }
}
