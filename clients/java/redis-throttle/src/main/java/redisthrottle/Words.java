package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The words of a command, its keys, and whether it only reads.
 *
 * @param withoutModule returns the call for a server without the module; null if it is the same
 */
record Words(
    List<String> list, List<String> keys, boolean isRead, @Nullable Supplier<Words> withoutModule) {
  private static final int ITEMS_MAX = 16;

  static Words of(List<String> keys, String... words) {
    return new Words(List.of(words), keys, false, null);
  }

  /** Returns the call of a verb, such as {@code CHECK} or {@code PEEK}, under one rule. */
  static Words single(String verb, Keyed keyed) {
    keyed.checked();
    if (keyed.isLease() && (verb.equals("REFUND") || verb.equals("CHARGE"))) {
      throw invalid("rule", "a rule with a cost; " + keyed.rule().name() + " is a lease");
    }
    return one(verb, keyed);
  }

  static Words one(String verb, Keyed keyed) {
    List<String> all = keyed.words();
    List<String> words = new ArrayList<>(all.size() + 2);
    boolean isCheck = verb.equals("CHECK");
    words.add(isCheck ? keyed.definition().command : "RL." + verb);
    words.add(keyed.key());
    words.addAll(isCheck ? all.subList(1, all.size()) : all);
    Supplier<Words> other = null;
    if (keyed.definition().fallback != null) {
      other = () -> one(verb, keyed.withDefault());
    }
    return new Words(words, List.of(keyed.key()), verb.equals("PEEK"), other);
  }

  /** Returns the call of {@code RL.ALL} or {@code RL.PEEKALL}. */
  static Words several(List<Keyed> all, boolean isPeek) {
    if (all.isEmpty() || all.size() > ITEMS_MAX) {
      throw invalid("items", "1 to " + ITEMS_MAX + " items");
    }
    Set<String> seen = new HashSet<>();
    for (Keyed keyed : all) {
      if (!seen.add(keyed.key())) {
        throw invalid("items", "no repeated key");
      }
      keyed.checked();
      if (keyed.isHeld()) {
        Keyed.checkSpaces(keyed.id());
      }
    }
    return joined(all, isPeek);
  }

  private static Words joined(List<Keyed> all, boolean isPeek) {
    List<String> keys = new ArrayList<>();
    List<String> words = new ArrayList<>();
    words.add(isPeek ? "RL.PEEKALL" : "RL.ALL");
    boolean hasDefault = false;
    for (Keyed keyed : all) {
      keys.add(keyed.key());
      words.add(keyed.key());
      words.add(String.join(" ", keyed.words()));
      hasDefault |= keyed.definition().fallback != null;
    }
    Supplier<Words> other = null;
    if (hasDefault) {
      other = () -> joined(all.stream().map(Keyed::withDefault).toList(), isPeek);
    }
    return new Words(words, keys, isPeek, other);
  }

  /**
   * Returns the call of the library's function, or of its script if {@code sha1} is not null. The
   * keys of all rules come first, then the rules.
   */
  Words inLibrary(@Nullable String sha1) {
    if (!list.get(0).startsWith("RL.")) {
      return this;
    }
    String verb = list.get(0).substring(3);
    List<String> all = new ArrayList<>();
    if (sha1 != null) {
      all.add("EVALSHA");
      all.add(sha1);
    } else {
      all.add(isRead ? "FCALL_RO" : "FCALL");
      all.add("rl_" + verb.toLowerCase(Locale.ROOT));
    }
    all.add(Integer.toString(keys.size()));
    all.addAll(keys);
    if (sha1 != null) {
      all.add(verb);
    }
    if (!verb.endsWith("ALL")) {
      all.addAll(list.subList(2, list.size()));
    } else {
      for (int at = 2; at < list.size(); at += 2) {
        all.add(list.get(at));
      }
    }
    return new Words(all, keys, isRead, null);
  }

  private static Words ofKey(String key, String command, List<String> rest) {
    List<String> words = new ArrayList<>(rest.size() + 2);
    words.add(command);
    words.add(key);
    words.addAll(rest);
    return new Words(words, List.of(key), false, null);
  }

  static Words forget(String key) {
    return ofKey(key, "DEL", List.of());
  }

  static Words block(String key, Duration d) {
    return ofKey(key, "RL.BLOCK", List.of(Checks.word(Checks.duration("duration", d))));
  }

  static Words renew(Keyed keyed) {
    return ofKey(keyed.key(), "RL.RENEW", List.of(keyed.id(), Checks.word(keyed.holdTtl())));
  }

  static Words release(Keyed keyed) {
    return ofKey(keyed.key(), "RL.RELEASE", List.of(keyed.id()));
  }

  /**
   * Returns the renewal of a reservation. It leaves nothing to others: they may have taken what had
   * to remain when it began.
   */
  static Words reserve(Keyed keyed) {
    List<String> words = keyed.withoutLeave().words();
    return ofKey(keyed.key(), "RL.RESERVE", words.subList(1, words.size()));
  }

  /**
   * Returns the commit of a reservation. It always has a cost: without one the server would charge
   * what was reserved.
   */
  static Words commit(Keyed keyed, long units) {
    List<String> words = new ArrayList<>();
    words.add(keyed.id());
    words.addAll(keyed.definition().withOptions(List.of("COST", Long.toString(units))));
    return ofKey(keyed.key(), "RL.COMMIT", words);
  }

  static Words cancel(Keyed keyed) {
    List<String> words = new ArrayList<>();
    words.add(keyed.id());
    words.addAll(keyed.definition().words);
    return ofKey(keyed.key(), "RL.CANCEL", words);
  }

  /** Returns a call that every back end knows and that writes nothing. */
  static Words probe(String key) {
    List<String> words = List.of("RL.PEEK", key, "GCRA", "1", "1", "1", "COST", "0");
    return new Words(words, List.of(key), true, null);
  }

  /** Returns the name of the call's denial. It has every word, such as the cost. */
  String denialName() {
    return String.join("\0", list);
  }
}
