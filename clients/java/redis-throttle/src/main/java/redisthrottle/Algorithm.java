package redisthrottle;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Decides calls in this process. Times are nanoseconds since 1970. All numbers are rounded so that
 * the limit is never exceeded.
 */
interface Algorithm {
  /** The largest limit of a local sliding log that has an entry for each call. */
  int ENTRIES_MAX = 1000;

  /** The retry time of a call that is never allowed. */
  long NEVER = -1;

  /**
   * A decision of an algorithm. Times are in milliseconds.
   *
   * @param state the state to store; null if nothing changes
   */
  record Verdict(
      boolean allowed,
      long limit,
      long remaining,
      long retryAfter,
      long resetAfter,
      @Nullable Object state) {}

  /**
   * Returns the verdict on a call.
   *
   * @param state null for a key without calls
   */
  Verdict decide(@Nullable Object state, long now, long cost);

  /**
   * Returns the state with units taken, also beyond the limit, or given back if they are below 0;
   * null if none are taken then.
   */
  @Nullable Object add(@Nullable Object state, long now, long units);

  /** Returns the milliseconds until the limit is not exceeded. */
  long over(@Nullable Object state, long now);

  /** Rounds nanoseconds up to milliseconds. */
  static long millis(long ns) {
    return (ns + 999_999) / 1_000_000;
  }

  /**
   * GCRA, a token bucket or a leaky bucket. Its level is the time in which it drains: {@code unit}
   * nanoseconds per unit.
   */
  record Bucket(boolean isQueue, long limit, long unit) implements Algorithm {
    /** The highest level. Units above it are not counted. */
    private static final long LEVEL_MAX = Long.MAX_VALUE / 2;

    record Level(long nanos, long at) {}

    private long used(@Nullable Object state, long now) {
      if (!(state instanceof Level last)) {
        return 0;
      }
      return Math.max(0, last.nanos - Math.max(0, now - last.at));
    }

    /** Returns the state of a bucket that is full again some nanoseconds after an instant. */
    Object fullAfter(long nanos, long at) {
      return new Level(Math.min(nanos, LEVEL_MAX), at);
    }

    @Override
    public Verdict decide(@Nullable Object state, long now, long cost) {
      long used = used(state, now);
      long full = limit * unit;
      long free = Math.max(0, full - used) / unit;
      if (cost > limit) {
        return new Verdict(false, limit, free, NEVER, millis(used), null);
      }
      long after = used + cost * unit;
      if (cost > 0 && after > full) {
        return new Verdict(false, limit, free, millis(after - full), millis(used), null);
      }
      long left = Math.max(0, full - after) / unit;
      long wait = isQueue ? millis(used) : 0;
      Level level = cost > 0 ? new Level(after, now) : null;
      return new Verdict(true, limit, left, wait, millis(after), level);
    }

    @Override
    public @Nullable Object add(@Nullable Object state, long now, long units) {
      long used = used(state, now);
      if (units > (LEVEL_MAX - used) / unit) {
        return new Level(LEVEL_MAX, now);
      }
      long left = used + Math.max(units, -used / unit - 1) * unit;
      return left > 0 ? new Level(left, now) : null;
    }

    @Override
    public long over(@Nullable Object state, long now) {
      return millis(Math.max(0, used(state, now) - limit * unit));
    }
  }

  /** A fixed window. */
  record Window(long limit, long window, boolean isAligned) implements Algorithm {
    record Opened(long start, long used) {}

    @Override
    public Verdict decide(@Nullable Object state, long now, long cost) {
      Opened open = at(state, now);
      boolean allowed = cost == 0 || open.used + cost <= limit;
      long left = millis(open.start + window - now);
      if (allowed) {
        open = new Opened(open.start, open.used + cost);
      }
      long denied = cost > limit ? NEVER : left;
      return new Verdict(
          allowed,
          limit,
          Math.max(0, limit - open.used),
          allowed ? 0 : denied,
          open.used > 0 ? left : 0,
          allowed && cost > 0 ? open : null);
    }

    /** Returns the window that is open at an instant, or that a call would open. */
    private Opened at(@Nullable Object state, long now) {
      long begin = isAligned ? now - now % window : now;
      if (state instanceof Opened last && now < last.start + window) {
        return isAligned && last.start < begin ? new Opened(begin, 0) : last;
      }
      return new Opened(begin, 0);
    }

    @Override
    public @Nullable Object add(@Nullable Object state, long now, long units) {
      Opened open = at(state, now);
      return open.used + units > 0 ? new Opened(open.start, open.used + units) : null;
    }

    @Override
    public long over(@Nullable Object state, long now) {
      Opened open = at(state, now);
      return open.used > limit ? millis(open.start + window - now) : 0;
    }
  }

  /** Counts two windows. The previous one counts less with each tick. */
  record Sliding(long limit, long window, long tick) implements Algorithm {
    /** The window has at most 2^20 ticks, so that units times ticks fit in 64 bits. */
    Sliding(long limit, long window) {
      this(limit, window, Math.max(1, window >> 20));
    }

    record Counters(long start, long previous, long current) {}

    private Counters at(@Nullable Object state, long now) {
      long start = now - now % window;
      if (state instanceof Counters last) {
        if (last.start == start) {
          return last;
        }
        if (last.start == start - window) {
          return new Counters(start, last.current, 0);
        }
      }
      return new Counters(start, 0, 0);
    }

    /** Returns the units that are free, in ticks of a unit. */
    private long free(Counters given, long now) {
      Counters c = at(given, now);
      long ticks = window / tick;
      long left = ticks - (now - c.start) / tick;
      return (limit - c.current) * ticks - c.previous * left;
    }

    /** Returns the milliseconds until a cost fits. */
    private long roomAfter(Counters c, long now, long cost) {
      long needed = cost * (window / tick);
      if (free(c, now) >= needed) {
        return 0;
      }
      long low = 0;
      long high = 2 * window / 1_000_000 + 1;
      while (high - low > 1) {
        long middle = (low + high) / 2;
        if (free(c, now + middle * 1_000_000) >= needed) {
          high = middle;
        } else {
          low = middle;
        }
      }
      return high;
    }

    @Override
    public Verdict decide(@Nullable Object state, long now, long cost) {
      Counters c = at(state, now);
      long retryAfter = 0;
      if (cost > limit) {
        retryAfter = NEVER;
      } else if (cost > 0) {
        retryAfter = roomAfter(c, now, cost);
      }
      boolean allowed = retryAfter == 0;
      boolean takes = allowed && cost > 0;
      if (takes) {
        c = new Counters(c.start, c.previous, c.current + cost);
      }
      long resetAfter = 0;
      if (c.current > 0) {
        resetAfter = millis(c.start + 2 * window - now);
      } else if (c.previous > 0) {
        resetAfter = millis(c.start + window - now);
      }
      long remaining = Math.max(0, free(c, now) / (window / tick));
      return new Verdict(allowed, limit, remaining, retryAfter, resetAfter, takes ? c : null);
    }

    @Override
    public @Nullable Object add(@Nullable Object state, long now, long units) {
      Counters c = at(state, now);
      long toCurrent = Math.max(units, -c.current);
      // Units above this number are not counted: units times ticks must fit in 64 bits.
      long most = Long.MAX_VALUE / 4 / (window / tick);
      long current = Math.min(c.current + toCurrent, most);
      long previous = Math.max(0, c.previous + units - toCurrent);
      return current + previous == 0 ? null : new Counters(c.start, previous, current);
    }

    @Override
    public long over(@Nullable Object state, long now) {
      return roomAfter(at(state, now), now, 0);
    }
  }

  /** Has an entry for each part of the window in which units were taken. */
  record Log(long limit, long window, long slot) implements Algorithm {
    Log(long limit, long window) {
      this(limit, window, limit > ENTRIES_MAX ? window / ENTRIES_MAX : 1);
    }

    record Entry(long at, long units) {}

    record Entries(List<Entry> all) {}

    /** Returns a copy of the entries that count at an instant. */
    private List<Entry> at(@Nullable Object state, long now) {
      List<Entry> entries = new ArrayList<>();
      if (state instanceof Entries kept) {
        for (Entry one : kept.all) {
          if (now < one.at + window) {
            entries.add(one);
          }
        }
      }
      return entries;
    }

    private static long sum(List<Entry> entries) {
      long used = 0;
      for (Entry one : entries) {
        used += one.units;
      }
      return used;
    }

    @Override
    public Verdict decide(@Nullable Object state, long now, long cost) {
      List<Entry> entries = at(state, now);
      long used = sum(entries);
      boolean allowed = cost == 0 || used + cost <= limit;
      long retryAfter = 0;
      if (!allowed) {
        long over = used + cost - limit;
        retryAfter = cost > limit ? NEVER : millis(freed(entries, over) + window - now);
      } else if (cost > 0) {
        put(entries, now, cost);
        used += cost;
      }
      long last = entries.isEmpty() ? 0 : entries.get(entries.size() - 1).at + window - now;
      return new Verdict(
          allowed,
          limit,
          Math.max(0, limit - used),
          retryAfter,
          millis(last),
          allowed && cost > 0 ? new Entries(entries) : null);
    }

    /** Returns the instant of the entry that must expire for the units to be free. */
    private static long freed(List<Entry> entries, long units) {
      long at = 0;
      long left = units;
      for (Entry one : entries) {
        if (left <= 0) {
          break;
        }
        left -= one.units;
        at = one.at;
      }
      return at;
    }

    /** Adds units at an instant, rounded up to a slot. */
    private void put(List<Entry> entries, long now, long units) {
      long at = (now + slot - 1) / slot * slot;
      int last = entries.size() - 1;
      if (last >= 0 && entries.get(last).at >= at) {
        Entry old = entries.get(last);
        entries.set(last, new Entry(old.at, old.units + units));
      } else {
        entries.add(new Entry(at, units));
      }
    }

    @Override
    public @Nullable Object add(@Nullable Object state, long now, long units) {
      List<Entry> left = at(state, now);
      if (units > 0) {
        put(left, now, units);
        return new Entries(left);
      }
      long back = -units;
      while (!left.isEmpty()) {
        Entry last = left.remove(left.size() - 1);
        if (last.units > back) {
          left.add(new Entry(last.at, last.units - back));
          return new Entries(left);
        }
        back -= last.units;
      }
      return null;
    }

    @Override
    public long over(@Nullable Object state, long now) {
      List<Entry> entries = at(state, now);
      long over = sum(entries) - limit;
      return over <= 0 ? 0 : millis(freed(entries, over) + window - now);
    }
  }
}
