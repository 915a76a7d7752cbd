package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Remembers the server's last denial of each key. It denies further calls under pressure and
 * without an answer, and afterwards the local limiter continues with its key.
 */
final class KnownDenials {
  /** The longest time for which a denial stands for an answer. */
  private static final Duration LONGEST = Duration.ofHours(1);

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

  private final Loop loop;
  private final int size;
  private final Duration young;
  private final Map<String, Known> denials = new HashMap<>();
  private final Forgotten forgotten = new Forgotten();

  KnownDenials(Loop loop, int size, Duration young) {
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
   * @param away the reason that there is no answer; null for a call under pressure, which only a
   *     young denial denies
   */
  @Nullable Decision denial(List<Keyed> all, @Nullable UnavailableException away) {
    if (denials.isEmpty()) {
      return null;
    }
    Duration longest = away == null ? young : LONGEST;
    long now = loop.nanos();
    List<Decision> rows = new ArrayList<>(all.size());
    int deciding = -1;
    for (Keyed keyed : all) {
      Known known = denials.get(keyed.key());
      if (known == null || !known.denies(keyed, now, longest)) {
        rows.add(untouched(keyed, away));
        continue;
      }
      rows.add(known.row.aged(Duration.ofNanos(known.passed(now))).withError(away));
      boolean isLonger = deciding < 0 || isLonger(rows, rows.size() - 1, deciding);
      deciding = isLonger ? rows.size() - 1 : deciding;
    }
    if (deciding < 0) {
      return null;
    }
    Decision row = rows.get(deciding);
    return all.size() == 1 ? row : row.withRows(List.copyOf(rows), deciding);
  }

  private static boolean isLonger(List<Decision> rows, int at, int than) {
    return rows.get(at).retryAfter().compareTo(rows.get(than).retryAfter()) > 0;
  }

  /** Returns the row of a rule that does not deny. */
  private static Decision untouched(Keyed keyed, @Nullable UnavailableException away) {
    return Decision.of(keyed.rule(), true, keyed.rule().limit(), 0, 0, 0, 0, Source.LOCAL, away);
  }

  /** Returns the denial of a call's key if it is over; otherwise null. */
  @Nullable Known over(Keyed keyed) {
    Known known = denials.isEmpty() ? null : denials.get(keyed.key());
    boolean isOver = known != null && known.isOf(keyed) && !known.isWithin(loop.nanos(), LONGEST);
    return isOver ? known : null;
  }
}
