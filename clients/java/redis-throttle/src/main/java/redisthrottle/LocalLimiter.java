package redisthrottle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Decides in this process, for rules whose {@link OnError} is {@code LOCAL}. */
final class LocalLimiter {
  /** The maximum number of keys. */
  private static final int KEYS_MAX = 10_000;

  private record Kept(Object state, long freeAt, boolean isExhausted) {}

  private final Loop loop;
  private final Map<String, Kept> keys = new HashMap<>();

  /** The keys with units left, the least recently used first. */
  private final LinkedHashMap<String, Boolean> idle = new LinkedHashMap<>();

  /** The others. They are dropped last, because dropping one resets its limit. */
  private final LinkedHashMap<String, Boolean> exhausted = new LinkedHashMap<>();

  LocalLimiter(Loop loop) {
    this.loop = loop;
  }

  /** Takes from all asks or from none. It takes nothing if {@code isPeek} is true. */
  List<Decision> decide(List<Ask> asks, UnavailableException away, boolean isPeek) {
    long now = loop.wallNanos();
    List<Algorithm.Verdict> verdicts = new ArrayList<>(asks.size());
    List<Decision> rows = new ArrayList<>(asks.size());
    boolean allowed = true;
    for (Ask ask : asks) {
      long cost = costOf(ask, now);
      Algorithm.Verdict verdict = verdict(ask, cost, now);
      verdicts.add(verdict);
      rows.add(decision(ask, verdict, cost, away));
      allowed &= verdict.allowed();
    }
    for (int at = 0; allowed && !isPeek && at < asks.size(); at++) {
      Object state = verdicts.get(at).state();
      if (state != null) {
        keep(asks.get(at), state, now);
      }
    }
    return rows;
  }

  private static Algorithm algorithm(Ask ask) {
    return Checks.present("onError", ask.rule().local);
  }

  private @Nullable Object stateOf(Ask ask) {
    Kept kept = keys.get(keyOf(ask));
    return kept == null ? null : kept.state;
  }

  /** Returns the units that a call takes; a partial call takes what is left. */
  private long costOf(Ask ask, long now) {
    if (!ask.isPartial()) {
      return ask.cost();
    }
    Algorithm.Verdict free = algorithm(ask).decide(stateOf(ask), now, 0);
    long left = unitsLeft(ask.leave(), free.limit());
    return Math.min(ask.cost(), Math.max(1, free.remaining() - left));
  }

  /** Decides one call with its options. */
  private Algorithm.Verdict verdict(Ask ask, long cost, long now) {
    Algorithm local = algorithm(ask);
    Object state = stateOf(ask);
    if (ask.leave() == null) {
      return local.decide(state, now, cost);
    }
    long left = unitsLeft(ask.leave(), local.decide(state, now, 0).limit());
    Algorithm.Verdict whole = local.decide(state, now, cost + left);
    return whole.allowed() ? local.decide(state, now, cost) : whole;
  }

  private static Decision decision(
      Ask ask, Algorithm.Verdict v, long cost, UnavailableException away) {
    // A cost above the local share may be within the rule's limit. Such a call may be allowed when
    // the server is back, so it has a retry time.
    long limit = ask.rule().decider().limit();
    long retryAfter = v.retryAfter();
    if (retryAfter == Algorithm.NEVER && ask.cost() + unitsLeft(ask.leave(), limit) <= limit) {
      retryAfter = Math.max(1000, v.resetAfter());
    }
    return Decision.of(
        ask.rule(),
        v.allowed(),
        v.limit(),
        v.remaining(),
        v.allowed() ? cost : 0,
        retryAfter,
        v.resetAfter(),
        Source.LOCAL,
        away);
  }

  /** Returns the units that a call leaves to others. */
  static long unitsLeft(@Nullable String leave, long limit) {
    if (leave == null) {
      return 0;
    }
    if (!leave.endsWith("%")) {
      return Long.parseLong(leave);
    }
    long share = Long.parseLong(leave.substring(0, leave.length() - 1));
    return limit / 100 * share + limit % 100 * share / 100;
  }

  /** Returns the key of a state. A changed rule of the same name has another one. */
  private static String keyOf(Ask ask) {
    return ask.rule().text + " " + ask.key();
  }

  private void keep(Ask ask, Object state, long now) {
    String key = keyOf(ask);
    remove(key);
    Algorithm.Verdict next = algorithm(ask).decide(state, now, 1);
    long freeAt = next.allowed() ? now : now + next.retryAfter() * 1_000_000;
    keys.put(key, new Kept(state, freeAt, !next.allowed()));
    (next.allowed() ? idle : exhausted).put(key, true);
    if (keys.size() > KEYS_MAX) {
      drop(now);
    }
  }

  private void remove(String key) {
    Kept old = keys.remove(key);
    if (old != null) {
      (old.isExhausted ? exhausted : idle).remove(key);
    }
  }

  /** Drops a key that has units left, if there is one. */
  private void drop(long now) {
    String oldest = exhausted.isEmpty() ? null : exhausted.keySet().iterator().next();
    Kept kept = oldest == null ? null : keys.get(oldest);
    if (!idle.isEmpty() && (kept == null || kept.freeAt > now)) {
      oldest = idle.keySet().iterator().next();
    }
    if (oldest != null) {
      remove(oldest);
    }
  }

  /** Returns units to a key. */
  void refund(Ask ask) {
    long now = loop.wallNanos();
    Object state = stateOf(ask);
    if (state == null) {
      return;
    }
    Object left = algorithm(ask).add(state, now, -ask.cost());
    if (left == null) {
      remove(keyOf(ask));
    } else {
      keep(ask, left, now);
    }
  }
}
