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
 * A command, its keys, and whether it only reads.
 *
 * @param withoutModule returns the call for a server without the module; null if it is the same
 */
record Call(
    List<String> words, List<String> keys, boolean isRead, @Nullable Supplier<Call> withoutModule) {
  private static final int ITEMS_MAX = 16;

  static Call of(List<String> keys, String... words) {
    return new Call(List.of(words), keys, false, null);
  }

  /** Returns the call of a verb, such as {@code CHECK} or {@code PEEK}, under one rule. */
  static Call single(String verb, Ask ask) {
    ask.checked();
    if (ask.isLease() && (verb.equals("REFUND") || verb.equals("CHARGE"))) {
      throw invalid("rule", "a rule with a cost; " + ask.rule().name() + " is a lease");
    }
    return one(verb, ask);
  }

  static Call one(String verb, Ask ask) {
    List<String> all = ask.words();
    List<String> words = new ArrayList<>(all.size() + 2);
    boolean isCheck = verb.equals("CHECK");
    words.add(isCheck ? ask.rule().command : "RL." + verb);
    words.add(ask.key());
    words.addAll(isCheck ? all.subList(1, all.size()) : all);
    Supplier<Call> other = null;
    if (ask.rule().definition.fallback() != null) {
      other = () -> one(verb, ask.withDefault());
    }
    return new Call(words, List.of(ask.key()), verb.equals("PEEK"), other);
  }

  /** Returns the call of {@code RL.ALL} or {@code RL.PEEKALL}. */
  static Call several(List<Ask> asks, boolean isPeek) {
    if (asks.isEmpty() || asks.size() > ITEMS_MAX) {
      throw invalid("items", "1 to " + ITEMS_MAX + " items");
    }
    Set<String> seen = new HashSet<>();
    for (Ask ask : asks) {
      if (!seen.add(ask.key())) {
        throw invalid("items", "no repeated key");
      }
      ask.checked();
      if (ask.isHeld()) {
        Ask.checkSpaces(ask.id());
      }
    }
    return joined(asks, isPeek);
  }

  private static Call joined(List<Ask> asks, boolean isPeek) {
    List<String> keys = new ArrayList<>();
    List<String> words = new ArrayList<>();
    words.add(isPeek ? "RL.PEEKALL" : "RL.ALL");
    boolean hasDefault = false;
    for (Ask ask : asks) {
      keys.add(ask.key());
      words.add(ask.key());
      words.add(String.join(" ", ask.words()));
      hasDefault |= ask.rule().definition.fallback() != null;
    }
    Supplier<Call> other = null;
    if (hasDefault) {
      other = () -> joined(asks.stream().map(Ask::withDefault).toList(), isPeek);
    }
    return new Call(words, keys, isPeek, other);
  }

  /**
   * Returns the call of the library's function, or of its script if {@code sha1} is not null. The
   * keys of all rules come first, then the rules.
   */
  Call inLibrary(@Nullable String sha1) {
    if (!words.get(0).startsWith("RL.")) {
      return this;
    }
    String verb = words.get(0).substring(3);
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
      all.addAll(words.subList(2, words.size()));
    } else {
      for (int at = 2; at < words.size(); at += 2) {
        all.add(words.get(at));
      }
    }
    return new Call(all, keys, isRead, null);
  }

  private static Call ofKey(String key, String command, List<String> rest) {
    List<String> words = new ArrayList<>(rest.size() + 2);
    words.add(command);
    words.add(key);
    words.addAll(rest);
    return new Call(words, List.of(key), false, null);
  }

  static Call forget(String key) {
    return ofKey(key, "DEL", List.of());
  }

  static Call block(String key, Duration d) {
    return ofKey(key, "RL.BLOCK", List.of(Checks.word(Checks.duration("duration", d))));
  }

  static Call renew(Ask ask) {
    return ofKey(ask.key(), "RL.RENEW", List.of(ask.id(), Checks.word(ask.holdTtl())));
  }

  static Call release(Ask ask) {
    return ofKey(ask.key(), "RL.RELEASE", List.of(ask.id()));
  }

  /**
   * Returns the renewal of a reservation. It leaves nothing to others: they may have taken what had
   * to remain when it began.
   */
  static Call reserve(Ask ask) {
    List<String> words = ask.withoutLeave().words();
    return ofKey(ask.key(), "RL.RESERVE", words.subList(1, words.size()));
  }

  /**
   * Returns the commit of a reservation. It always has a cost: without one the server would charge
   * what was reserved.
   */
  static Call commit(Ask ask, long units) {
    List<String> words = new ArrayList<>();
    words.add(ask.id());
    words.addAll(ask.rule().withOptions(List.of("COST", Long.toString(units))));
    return ofKey(ask.key(), "RL.COMMIT", words);
  }

  static Call cancel(Ask ask) {
    List<String> words = new ArrayList<>();
    words.add(ask.id());
    words.addAll(ask.rule().definition.words());
    return ofKey(ask.key(), "RL.CANCEL", words);
  }

  /** Returns a call that every back end answers and that writes nothing. */
  static Call probe(String key) {
    List<String> words = List.of("RL.PEEK", key, "GCRA", "1", "1", "1", "COST", "0");
    return new Call(words, List.of(key), true, null);
  }

  /** Returns the name of the call's denial. It has every word, such as the cost. */
  String denialName() {
    return String.join("\0", words);
  }
}
