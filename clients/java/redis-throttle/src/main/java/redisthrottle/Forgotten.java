package redisthrottle;

import java.util.LinkedHashMap;

/** The keys that were forgotten lately. Denials that were requested before that are not kept. */
final class Forgotten {
  private static final int KEYS_MAX = 10_000;

  /** The turn at which a key was last forgotten. */
  private final LinkedHashMap<String, Long> turns = new LinkedHashMap<>();

  /** All keys count as forgotten at this turn. */
  private long oldest;

  void add(String key, long turn) {
    turns.remove(key);
    turns.put(key, turn);
    if (turns.size() > KEYS_MAX) {
      String first = turns.keySet().iterator().next();
      oldest = turns.remove(first);
    }
  }

  /** Returns true if the key was forgotten after a turn. */
  boolean isAfter(String key, long turn) {
    return turn < (turns.isEmpty() ? oldest : turns.getOrDefault(key, oldest));
  }
}
