package redisthrottle;

import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Keeps denials, which decide the same command again until they expire. When it is full, the oldest
 * is dropped.
 */
final class DenialCache {
  private record Denial(Decision decision, long at, long lifeNs, List<String> keys) {}

  private final Loop loop;
  private final int size;
  private final long longestNs;
  private final LinkedHashMap<String, Denial> denials = new LinkedHashMap<>();

  /** The names of the denials of each key. */
  private final Map<String, Set<String>> names = new HashMap<>();

  private final Forgotten forgotten = new Forgotten();

  DenialCache(Loop loop, int size, Duration longest) {
    this.loop = loop;
    this.size = size;
    this.longestNs = longest.toNanos();
  }

  /** Returns the kept denial of a call as it is now, or null. */
  @Nullable Decision get(Words call) {
    if (denials.isEmpty()) {
      return null;
    }
    String name = call.denialName();
    Denial kept = denials.get(name);
    if (kept == null) {
      return null;
    }
    long passed = (loop.nanos() - kept.at) / 1_000_000 * 1_000_000;
    if (passed >= kept.lifeNs) {
      remove(name);
      return null;
    }
    return kept.decision.aged(Duration.ofNanos(passed));
  }

  /** Keeps a denial, unless one of its keys was forgotten after the call was sent. */
  void put(Words call, Decision d, Denials.Asked asked) {
    boolean isKept = !d.allowed() && d.source() == Source.SERVER && !d.retryAfter().isZero();
    if (size == 0 || !isKept) {
      return;
    }
    for (String key : call.keys()) {
      if (forgotten.isAfter(key, asked.turn())) {
        return;
      }
    }
    String name = call.denialName();
    remove(name);
    long life = d.never() ? longestNs : Math.min(d.retryAfter().toNanos(), longestNs);
    denials.put(name, new Denial(d, asked.at(), life, call.keys()));
    for (String key : call.keys()) {
      names.computeIfAbsent(key, one -> new HashSet<>()).add(name);
    }
    if (denials.size() > size) {
      remove(denials.keySet().iterator().next());
    }
  }

  /** Removes all denials of a key. Those on their way are not kept either. */
  void forget(String key, long turn) {
    if (size == 0) {
      return;
    }
    Set<String> of = names.get(key);
    if (of != null) {
      List.copyOf(of).forEach(this::remove);
    }
    forgotten.add(key, turn);
  }

  private void remove(String name) {
    Denial old = denials.remove(name);
    if (old == null) {
      return;
    }
    for (String key : old.keys) {
      Set<String> of = names.get(key);
      if (of != null && of.remove(name) && of.isEmpty()) {
        names.remove(key);
      }
    }
  }
}
