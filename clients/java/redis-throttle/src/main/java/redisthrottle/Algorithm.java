package redisthrottle;

import java.time.Duration;
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

  /** Returns the state with units given back; null if none are taken then. */
  @Nullable Object refund(Object state, long now, long cost);

  /**
   * Returns the algorithm for a share of the rule, or null if its kind has none. A share below one
   * unit is one unit in a longer time.
   */
  static @Nullable Algorithm of(BaseRule rule, double share) {
    Definition d = rule.definition;
    double wanted = d.limit() * share;
    long limit = Math.max(1, (long) wanted);
    switch (d.kind()) {
      case GCRA, TOKEN_BUCKET, LEAKY_BUCKET -> {
        Duration period = Checks.present("period", d.period());
        long unit = (long) Math.ceil((double) period.toNanos() / d.rate() / share);
        return new Bucket(d.kind() == Kind.LEAKY_BUCKET, limit, unit);
      }
      case FIXED, SLIDING, SLIDING_LOG -> {
        Duration given = Checks.present("window", d.window());
        long window = (long) (given.toNanos() / Math.min(1, wanted));
        return switch (d.kind()) {
          case FIXED -> new Window(limit, window, d.words().contains("ALIGNED"));
          // The window has at most 2^20 ticks, so that units times ticks fit in 64 bits.
          case SLIDING -> new Sliding(limit, window, Math.max(1, window >> 20));
          default -> new Log(limit, window, limit > ENTRIES_MAX ? window / ENTRIES_MAX : 1);
        };
      }
      default -> {
        return null;
      }
    }
  }

  /** Rounds nanoseconds up to milliseconds. */
  static long millis(long ns) {
    return (ns + 999_999) / 1_000_000;
  }

  /** GCRA, a token bucket or a leaky bucket. Its level is the time until it is empty. */
  record Bucket(boolean isQueue, long limit, long unit) implements Algorithm {
    record Level(long ns, long at) {}

    @Override
    public Verdict decide(@Nullable Object state, long now, long cost) {
      long used = 0;
      if (state instanceof Level last) {
        used = Math.max(0, last.ns - Math.max(0, now - last.at));
      }
      long full = limit * unit;
      if (cost > limit) {
        return new Verdict(
            false, limit, Math.max(0, full - used) / unit, NEVER, millis(used), null);
      }
      long after = used + cost * unit;
      if (cost > 0 && after > full) {
        return new Verdict(
            false,
            limit,
            Math.max(0, full - used) / unit,
            millis(after - full),
            millis(used),
            null);
      }
      long left = Math.max(0, full - after) / unit;
      long wait = isQueue ? millis(used) : 0;
      Level level = cost > 0 ? new Level(after, now) : null;
      return new Verdict(true, limit, left, wait, millis(after), level);
    }

    @Override
    public @Nullable Object refund(Object state, long now, long cost) {
      Level last = (Level) state;
      long left = last.ns - Math.max(0, now - last.at) - cost * unit;
      return left > 0 ? new Level(left, now) : null;
    }
  }

  /** A fixed window. */
  record Window(long limit, long window, boolean isAligned) implements Algorithm {
    record Opened(long start, long used) {}

    @Override
    public Verdict decide(@Nullable Object state, long now, long cost) {
      long begin = isAligned ? now - now % window : now;
      Opened open = new Opened(begin, 0);
      if (state instanceof Opened last && !isOver(last, now)) {
        open = last;
      }
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

    private boolean isOver(Opened open, long now) {
      return now >= open.start + window || isAligned && open.start < now - now % window;
    }

    @Override
    public @Nullable Object refund(Object state, long now, long cost) {
      Opened open = (Opened) state;
      boolean isEmpty = isOver(open, now) || open.used <= cost;
      return isEmpty ? null : new Opened(open.start, open.used - cost);
    }
  }

  /** Counts two windows. The previous one counts less with each tick. */
  record Sliding(long limit, long window, long tick) implements Algorithm {
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
    public @Nullable Object refund(Object state, long now, long cost) {
      Counters c = at(state, now);
      long fromCurrent = Math.min(cost, c.current);
      long previous = Math.max(0, c.previous - (cost - fromCurrent));
      Counters left = new Counters(c.start, previous, c.current - fromCurrent);
      return left.current + left.previous == 0 ? null : left;
    }
  }

  /** Has an entry for each part of the window in which units were taken. */
  record Log(long limit, long window, long slot) implements Algorithm {
    record Entry(long at, long units) {}

    record Entries(List<Entry> all) {}

    @Override
    public Verdict decide(@Nullable Object state, long now, long cost) {
      List<Entry> entries = new ArrayList<>();
      long used = 0;
      if (state instanceof Entries kept) {
        for (Entry one : kept.all) {
          if (now < one.at + window) {
            entries.add(one);
            used += one.units;
          }
        }
      }
      boolean allowed = cost == 0 || used + cost <= limit;
      long retryAfter = 0;
      if (!allowed) {
        long over = used + cost - limit;
        retryAfter = cost > limit ? NEVER : millis(freed(entries, over) + window - now);
      } else if (cost > 0) {
        add(entries, now, cost);
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
    private void add(List<Entry> entries, long now, long units) {
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
    public @Nullable Object refund(Object state, long now, long cost) {
      List<Entry> left = new ArrayList<>(((Entries) state).all);
      long units = cost;
      while (!left.isEmpty()) {
        Entry last = left.remove(left.size() - 1);
        if (last.units > units) {
          left.add(new Entry(last.at, last.units - units));
          return new Entries(left);
        }
        units -= last.units;
      }
      return null;
    }
  }
}
