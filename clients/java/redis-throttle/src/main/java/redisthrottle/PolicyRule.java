package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A limit that the server stores under a name. */
public final class PolicyRule extends Rule {
  PolicyRule(Definition definition) {
    super(definition);
  }

  @Override
  Rule with(Definition other) {
    return new PolicyRule(other);
  }

  /**
   * Returns the rule with up to two names that the server looks up before the policy's, the most
   * specific one first, such as {@code tenant:acme} and {@code plan:gold}.
   */
  public PolicyRule variants(String... names) {
    if (Checks.present("variants", names).length > 2) {
      throw invalid("variants", "at most two names of policies");
    }
    List<String> words = new ArrayList<>(definition.words.subList(0, 2));
    for (String one : names) {
      words.add("FOR");
      words.add(Checks.name("variants", one));
    }
    return new PolicyRule(definition.withWords(withDefault(words, definition.fallback)));
  }

  /**
   * Returns the rule with a default, which applies if the server has no policy of the name, or no
   * module. It is neither a lease nor a policy.
   */
  public PolicyRule fallback(Rule rule) {
    Definition other = Checks.present("fallback", rule).definition;
    if (other.kind == Kind.LEASE || other.kind == Kind.POLICY) {
      throw invalid("fallback", "a rule that is neither a lease nor a policy");
    }
    int end = definition.words.indexOf("DEFAULT");
    int size = end < 0 ? definition.words.size() : end;
    List<String> words = withDefault(definition.words.subList(0, size), other);
    return new PolicyRule(definition.withFallback(words, other));
  }

  private static List<String> withDefault(List<String> words, @Nullable Definition fallback) {
    List<String> all = new ArrayList<>(words);
    if (fallback != null) {
      all.add("DEFAULT");
      all.addAll(fallback.words);
    }
    return List.copyOf(all);
  }
}
