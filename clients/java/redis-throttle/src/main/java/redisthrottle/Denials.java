package redisthrottle;

import java.util.List;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/** What a limiter keeps of the server's denials. */
final class Denials {
  /** The moment before a call was sent. */
  record Asked(long at, long turn) {}

  /** The moment of all calls if nothing is kept. */
  private static final Asked NOTHING_KEPT = new Asked(0, 0);

  final DenialCache cache;
  final KnownDenials known;
  private final Loop loop;
  private final boolean isKept;
  private long turn;

  Denials(Loop loop, Options options) {
    this.loop = loop;
    this.cache = new DenialCache(loop, options.denialCache, options.denialCacheMax);
    this.known = new KnownDenials(loop, options.knownDenials, options.denialCacheMax);
    this.isKept = options.denialCache > 0 || options.knownDenials > 0;
  }

  /** Returns the moment for {@link #note}, before the call is sent. */
  Asked asked() {
    return isKept ? new Asked(loop.nanos(), ++turn) : NOTHING_KEPT;
  }

  /**
   * Notes the server's decision.
   *
   * @param cached the call whose denial the cache keeps; null for none
   */
  void note(List<Keyed> all, @Nullable Words cached, Decision d, Asked asked) {
    known.note(all, d, asked.turn);
    if (cached != null) {
      cache.put(cached, d, asked);
    }
  }

  /** Removes all denials of a key. Those on their way are not kept either. */
  void forget(String key) {
    turn++;
    cache.forget(key, turn);
    known.forget(key, turn);
  }

  /** Removes the denials that a charge, a refund or the end of an item makes obsolete. */
  void forget(EventKind kind, String key) {
    if (kind == EventKind.CHARGE) {
      forgetCached(key);
    } else if (kind != EventKind.LEASE) {
      forget(key);
    }
  }

  /** Removes the cached denials of a key. What is known of it stays. */
  void forgetCached(String key) {
    turn++;
    cache.forget(key, turn);
  }
}
