package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/** What a limiter keeps of the server's denials. */
final class Denials {
  /** The moment before a call is sent. */
  record Moment(long at, long turn) {}

  /** The moment of all calls if nothing is kept. */
  private static final Moment NOTHING_KEPT = new Moment(0, 0);

  final Cache cache;
  final LastDenials known;
  private final Loop loop;
  private final boolean isKept;
  private long turn;

  Denials(Loop loop, Options options) {
    this.loop = loop;
    this.cache = new Cache(loop, options.denialCache, options.denialCacheMax);
    this.known = new LastDenials(loop, options.knownDenials, options.denialCacheMax);
    this.isKept = options.denialCache > 0 || options.knownDenials > 0;
  }

  /** Returns the moment for {@link #note}, before the call is sent. */
  Moment nextMoment() {
    return isKept ? new Moment(loop.nanos(), ++turn) : NOTHING_KEPT;
  }

  /**
   * Notes the server's decision.
   *
   * @param cached the call whose denial the cache keeps; null for none
   */
  void note(List<Keyed> all, @Nullable Words cached, Decision d, Moment moment) {
    known.note(all, d, moment.turn);
    if (cached != null) {
      cache.put(cached, d, moment);
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

  /**
   * Keeps denials, which decide the same command again until they expire. When it is full, the
   * oldest is dropped.
   */
  static final class Cache {
    private record Denial(Decision decision, long at, long lifeNs, List<String> keys) {}

    private final Loop loop;
    private final int size;
    private final long longestNs;
    private final LinkedHashMap<String, Denial> denials = new LinkedHashMap<>();

    /** The names of the denials of each key. */
    private final Map<String, Set<String>> names = new HashMap<>();

    private final Forgotten forgotten = new Forgotten();

    Cache(Loop loop, int size, Duration longest) {
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
      return Draft.of(kept.decision).aged(Duration.ofNanos(passed)).done();
    }

    /** Keeps a denial, unless one of its keys was forgotten after the call was sent. */
    void put(Words call, Decision d, Moment moment) {
      boolean isKept = !d.allowed() && d.source() == Source.SERVER && !d.retryAfter().isZero();
      if (size == 0 || !isKept) {
        return;
      }
      for (String key : call.keys()) {
        if (forgotten.isAfter(key, moment.turn())) {
          return;
        }
      }
      String name = call.denialName();
      remove(name);
      long life = d.never() ? longestNs : Math.min(d.retryAfter().toNanos(), longestNs);
      denials.put(name, new Denial(d, moment.at(), life, call.keys()));
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

  /** The last denial of a key. */
  static final class Known {
    private final Definition rule;
    private final @Nullable String leave;
    private final long cost;
    private final Decision row;
    private final long at;

    /** True if this process keeps the limit of the key, because the retry time is over. */
    private boolean isLocal;

    private Known(Keyed keyed, Decision row, long at) {
      this.rule = keyed.definition();
      this.leave = keyed.leave();
      this.cost = costOf(keyed);
      this.row = row;
      this.at = at;
    }

    private static long costOf(Keyed keyed) {
      return keyed.isPartial() ? 1 : keyed.cost();
    }

    /** Returns true for a call of the same words, apart from its cost. */
    private boolean isOf(Keyed keyed) {
      return rule.isSame(keyed.definition()) && Objects.equals(leave, keyed.leave());
    }

    private boolean denies(Keyed keyed, long now, Duration longest) {
      return cost <= costOf(keyed) && isOf(keyed) && isWithin(now, longest);
    }

    private boolean isWithin(long now, Duration longest) {
      long life = row.retryAfter().compareTo(longest) < 0 ? nanos(row) : longest.toNanos();
      return passed(now) < life;
    }

    private static long nanos(Decision row) {
      return row.retryAfter().toNanos();
    }

    /** Returns the age in whole milliseconds. */
    private long passed(long now) {
      return (now - at) / 1_000_000 * 1_000_000;
    }

    private double endMs() {
      return at / 1e6 + row.retryAfter().toMillis();
    }

    /** Begins the key's state in this process, unless it has begun. */
    void begin(Local local, Local.Share share) {
      if (!isLocal) {
        isLocal = true;
        local.begin(share, row.resetAfter(), at);
      }
    }
  }

  /**
   * Remembers the server's last denial of each key. It denies further calls under pressure and
   * without a final reply, and afterwards the local limiter continues with its key.
   */
  static final class LastDenials {
    /** The longest time for which a denial is used in place of a final reply. */
    private static final Duration LONGEST = Duration.ofHours(1);

    private final Loop loop;
    private final int size;
    private final Duration young;
    private final Map<String, Known> denials = new HashMap<>();
    private final Forgotten forgotten = new Forgotten();

    LastDenials(Loop loop, int size, Duration young) {
      this.loop = loop;
      this.size = size;
      this.young = young;
    }

    /** Notes a decision of the server with all its rows, when it is read. */
    void note(List<Keyed> all, Decision d, long turn) {
      if (size == 0) {
        return;
      }
      if (d.rows().isEmpty()) {
        note(all.get(0), d, turn);
        return;
      }
      for (int at = 0; at < all.size(); at++) {
        note(all.get(at), d.rows().get(at), turn);
      }
    }

    private void note(Keyed keyed, Decision row, long turn) {
      String key = keyed.key();
      if (row.allowed()) {
        Known old = denials.isEmpty() ? null : denials.get(key);
        if (old != null && old.cost <= row.granted() && old.isOf(keyed)) {
          denials.remove(key);
        }
      } else if (!forgotten.isAfter(key, turn)) {
        put(key, new Known(keyed, row, loop.nanos()), keyed);
      }
    }

    /** Keeps a denial, unless that of a smaller cost still denies more calls. */
    private void put(String key, Known denial, Keyed keyed) {
      Known old = denials.put(key, denial);
      if (old == null) {
        if (denials.size() > size) {
          evict();
        }
      } else if (old.cost < denial.cost && old.denies(keyed, loop.nanos(), LONGEST)) {
        denials.put(key, old);
      }
    }

    /** Drops the tenth that ends first, so that a new key costs constant time on average. */
    private void evict() {
      double[] ends = denials.values().stream().mapToDouble(Known::endMs).sorted().toArray();
      int left = (size + 9) / 10;
      double last = ends[left - 1];
      Iterator<Known> all = denials.values().iterator();
      while (left > 0 && all.hasNext()) {
        if (all.next().endMs() <= last) {
          all.remove();
          left--;
        }
      }
    }

    /** Removes the denial of a key. Those on their way are not kept either. */
    void forget(String key, long turn) {
      if (size > 0) {
        denials.remove(key);
        forgotten.add(key, turn);
      }
    }

    /**
     * Returns the denial of a call by what is known of its keys, or null.
     *
     * @param unavailable the reason that there is no final reply; null for a call under pressure,
     *     which only a young denial denies
     */
    @Nullable Decision denial(List<Keyed> all, @Nullable UnavailableException unavailable) {
      if (denials.isEmpty()) {
        return null;
      }
      Duration longest = unavailable == null ? young : LONGEST;
      long now = loop.nanos();
      List<Decision> rows = new ArrayList<>(all.size());
      int deciding = -1;
      for (Keyed keyed : all) {
        Known known = denials.get(keyed.key());
        if (known == null || !known.denies(keyed, now, longest)) {
          rows.add(untouched(keyed, unavailable));
          continue;
        }
        rows.add(
            Draft.of(known.row)
                .aged(Duration.ofNanos(known.passed(now)))
                .error(unavailable)
                .done());
        boolean isLonger = deciding < 0 || isLonger(rows, rows.size() - 1, deciding);
        deciding = isLonger ? rows.size() - 1 : deciding;
      }
      if (deciding < 0) {
        return null;
      }
      Decision row = rows.get(deciding);
      return all.size() == 1 ? row : Draft.of(row).rows(rows, deciding).done();
    }

    private static boolean isLonger(List<Decision> rows, int at, int than) {
      return rows.get(at).retryAfter().compareTo(rows.get(than).retryAfter()) > 0;
    }

    /** Returns the row of a rule that does not deny. */
    private static Decision untouched(Keyed keyed, @Nullable UnavailableException unavailable) {
      return Draft.decision(
          keyed.rule(), true, keyed.rule().limit(), 0, 0, 0, 0, Source.LOCAL, unavailable);
    }

    /** Returns the denial of a call's key if it is over; otherwise null. */
    @Nullable Known over(Keyed keyed) {
      Known known = denials.isEmpty() ? null : denials.get(keyed.key());
      boolean isOver = known != null && known.isOf(keyed) && !known.isWithin(loop.nanos(), LONGEST);
      return isOver ? known : null;
    }
  }

  /** The keys that were forgotten lately. Denials that were requested before that are not kept. */
  private static final class Forgotten {
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
}
