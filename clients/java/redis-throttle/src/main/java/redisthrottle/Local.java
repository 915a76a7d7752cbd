package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Decides in this process, for rules whose {@link OnError} is {@code LOCAL}, and for keys that the
 * server denied, until it replies again.
 */
final class Local {
  /** The maximum number of keys. */
  private static final int KEYS_MAX = 10_000;

  /**
   * A rule that this process decides.
   *
   * @param algorithm the rule with its local share, or with its whole limit
   * @param isWhole true for the whole limit
   */
  record Share(Keyed keyed, Algorithm algorithm, boolean isWhole) {
    /** Returns the same rule for a call that takes nothing. */
    Share untouched() {
      return new Share(keyed.withCost(0, false).withoutLeave(), algorithm, isWhole);
    }
  }

  private record Kept(Object state, long freeAt, boolean isExhausted) {}

  private final Loop loop;
  private final Map<String, Kept> keys = new HashMap<>();

  /** The keys with units left, the least recently used first. */
  private final LinkedHashMap<String, Boolean> idle = new LinkedHashMap<>();

  /** The others. They are dropped last, because dropping one resets its limit. */
  private final LinkedHashMap<String, Boolean> exhausted = new LinkedHashMap<>();

  Local(Loop loop) {
    this.loop = loop;
  }

  /**
   * Takes from all rules or from none. If one denies, the rows of the others are those of a call
   * that takes nothing.
   *
   * @param unavailable the reason that there is no final reply; null for a server that decides by
   *     this limiter
   * @param isDenied true if a rule that is not decided here denies
   * @param isPeek true if nothing is taken
   */
  List<Decision> decide(
      List<Share> shares,
      @Nullable UnavailableException unavailable,
      boolean isDenied,
      boolean isPeek) {
    List<Decision> rows = each(shares, unavailable, isPeek || isDenied);
    boolean denies = isDenied || rows.stream().anyMatch(row -> !row.allowed());
    for (int at = 0; denies && at < rows.size(); at++) {
      if (rows.get(at).allowed()) {
        rows.set(at, each(List.of(shares.get(at).untouched()), unavailable, true).get(0));
      }
    }
    return rows;
  }

  private List<Decision> each(
      List<Share> shares, @Nullable UnavailableException unavailable, boolean isPeek) {
    long now = loop.wallNanos();
    List<Algorithm.Verdict> verdicts = new ArrayList<>(shares.size());
    List<Decision> rows = new ArrayList<>(shares.size());
    boolean allowed = true;
    for (Share share : shares) {
      long cost = costOf(share, now);
      Algorithm.Verdict verdict = verdict(share, cost, now);
      verdicts.add(verdict);
      rows.add(decision(share.keyed, verdict, cost, unavailable));
      allowed &= verdict.allowed();
    }
    for (int at = 0; allowed && !isPeek && at < shares.size(); at++) {
      Object state = verdicts.get(at).state();
      if (state != null) {
        keep(shares.get(at), state, now);
      }
    }
    return rows;
  }

  private @Nullable Object stateOf(Share share) {
    Kept kept = keys.get(keyOf(share));
    return kept == null ? null : kept.state;
  }

  /** Returns the units that a call takes; a partial call takes what is left. */
  private long costOf(Share share, long now) {
    Keyed keyed = share.keyed;
    if (!keyed.isPartial()) {
      return keyed.cost();
    }
    Algorithm.Verdict free = share.algorithm().decide(stateOf(share), now, 0);
    long left = keyed.unitsLeft(free.limit());
    return Math.min(keyed.cost(), Math.max(1, free.remaining() - left));
  }

  /** Decides one call with its options. */
  private Algorithm.Verdict verdict(Share share, long cost, long now) {
    Algorithm local = share.algorithm();
    Object state = stateOf(share);
    if (share.keyed.leave() == null) {
      return local.decide(state, now, cost);
    }
    long left = share.keyed.unitsLeft(local.decide(state, now, 0).limit());
    Algorithm.Verdict whole = local.decide(state, now, cost + left);
    return whole.allowed() ? local.decide(state, now, cost) : whole;
  }

  private static Decision decision(
      Keyed keyed, Algorithm.Verdict v, long cost, @Nullable UnavailableException unavailable) {
    // A cost above the local share may be within the rule's limit. Such a call may be allowed when
    // the server is back, so it has a retry time.
    long limit = keyed.definition().decider().limit;
    long retryAfter = v.retryAfter();
    if (retryAfter == Algorithm.NEVER && keyed.cost() + keyed.unitsLeft(limit) <= limit) {
      retryAfter = Math.max(1000, v.resetAfter());
    }
    return Draft.decision(
        keyed.rule(),
        v.allowed(),
        v.limit(),
        v.remaining(),
        v.allowed() ? cost : 0,
        retryAfter,
        v.resetAfter(),
        Source.LOCAL,
        unavailable);
  }

  /** Returns the key of a state. A changed rule of the same name has another one. */
  private static String keyOf(Share share) {
    String stem = share.isWhole ? "whole " : "";
    return stem + share.keyed.definition().text + " " + share.keyed.key();
  }

  private void keep(Share share, Object state, long now) {
    String key = keyOf(share);
    remove(key);
    Algorithm.Verdict next = share.algorithm().decide(state, now, 1);
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

  /**
   * Drops a key that has units left, if there is one. If most keys have none, drops one of these:
   * else no other key would be kept.
   */
  private void drop(long now) {
    String oldest = exhausted.isEmpty() ? null : exhausted.keySet().iterator().next();
    Kept kept = oldest == null ? null : keys.get(oldest);
    boolean isCrowded = exhausted.size() > KEYS_MAX / 2;
    if (!isCrowded && !idle.isEmpty() && (kept == null || kept.freeAt > now)) {
      oldest = idle.keySet().iterator().next();
    }
    if (oldest != null) {
      remove(oldest);
    }
  }

  /**
   * Begins the state of a key whose denial is over: a bucket is full again some time after an
   * instant, or later if the key has used more here. A window goes on. So no denial gives a key a
   * second allowance.
   */
  void begin(Share share, Duration fullAfter, long readAt) {
    if (share.algorithm instanceof Algorithm.Bucket bucket && !fullAfter.equals(Decision.NEVER)) {
      long now = loop.wallNanos();
      long began = now - (loop.nanos() - readAt);
      Object state = bucket.fullAfter(fullAfter.toNanos(), began);
      if (resetAfter(share, stateOf(share), now) < resetAfter(share, state, now)) {
        keep(share, state, now);
      }
    }
  }

  private static long resetAfter(Share share, @Nullable Object state, long now) {
    return share.algorithm.decide(state, now, 0).resetAfter();
  }

  /** Takes units of a key, also beyond its limit, or gives them back if they are below 0. */
  Decision add(Share share, long units) {
    long now = loop.wallNanos();
    Object after = share.algorithm.add(stateOf(share), now, units);
    if (after != null) {
      keep(share, after, now);
    } else {
      remove(keyOf(share));
    }
    long over = share.algorithm.over(after, now);
    Algorithm.Verdict v = share.algorithm.decide(after, now, 0);
    return decision(
        share.keyed,
        new Algorithm.Verdict(over == 0, v.limit(), v.remaining(), over, v.resetAfter(), null),
        0,
        null);
  }

  /** Forgets a key. Returns true if units were taken. */
  boolean forget(Share share) {
    boolean isThere = resetAfter(share, stateOf(share), loop.wallNanos()) > 0;
    remove(keyOf(share));
    return isThere;
  }
}
