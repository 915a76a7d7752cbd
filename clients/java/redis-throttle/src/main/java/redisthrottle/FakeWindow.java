package redisthrottle;

import java.time.DayOfWeek;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.time.temporal.TemporalAdjusters;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A counter per window, fixed or of the calendar. Its units are used or reserved. */
record FakeWindow(long limit, Bounds bounds) implements Algorithm {
  /** Finds the window that is open at an instant. */
  interface Bounds {
    /**
     * Returns the begin and the end.
     *
     * @param start the begin of the last window
     */
    long[] at(long start, long now);
  }

  /** Holds units, or remembers the id of a settled reservation. */
  record Held(String id, long units, boolean isSettled, long ttl, long ends) {}

  /** The used units of a window, and its reservations. */
  record Usage(long limit, long begin, long end, long used, long now, List<Held> held) {
    Usage with(long units, List<Held> reservations) {
      return new Usage(limit, begin, end, units, now, List.copyOf(reservations));
    }

    @Nullable Held held(String id) {
      return held.stream().filter(one -> one.id.equals(id)).findFirst().orElse(null);
    }

    /** Returns the usage without a reservation. */
    Usage without(@Nullable Held one) {
      return with(used, held.stream().filter(other -> other != one).toList());
    }

    Usage with(Held one) {
      List<Held> all = new ArrayList<>(held);
      all.add(one);
      return with(used, all);
    }

    /** Returns the state to store; null if nothing is used or remembered. */
    @Nullable Usage stored() {
      return used == 0 && held.isEmpty() ? null : this;
    }

    /** Returns the units used and held. */
    long taken() {
      return used + held.stream().mapToLong(Held::units).sum();
    }

    Verdict verdict(boolean allowed, long retryAfter, @Nullable Usage stored) {
      long reset = used > 0 ? end : now;
      for (Held one : held) {
        reset = one.units > 0 ? Math.max(reset, one.ends) : reset;
      }
      long left = Math.max(0, limit - taken());
      long resetAfter = Algorithm.millis(reset - now);
      return new Verdict(allowed, limit, left, retryAfter, resetAfter, stored);
    }

    /** Returns the milliseconds until a cost fits: the window ends, or reservations expire. */
    long roomAfter(long cost) {
      if (cost > limit) {
        return NEVER;
      }
      List<Held> freed = new ArrayList<>(held);
      freed.add(new Held("", used, true, 0, end));
      freed.sort(Comparator.comparingLong(Held::ends));
      long left = taken();
      long at = now;
      for (Held one : freed) {
        if (left + cost <= limit) {
          break;
        }
        left -= one.units;
        at = one.ends;
      }
      return Algorithm.millis(at - now);
    }
  }

  static FakeWindow fixed(long limit, long length, boolean isAligned) {
    return new FakeWindow(
        limit,
        (start, now) -> {
          long begin = isAligned ? now - now % length : now;
          boolean isOpen = now < start + length && (!isAligned || start >= begin);
          begin = isOpen ? start : begin;
          return new long[] {begin, begin + length};
        });
  }

  /** Returns a limit in each period of the calendar in UTC. */
  static FakeWindow quota(long limit, String unit) {
    return new FakeWindow(limit, (start, now) -> period(unit, now));
  }

  private static long[] period(String unit, long now) {
    LocalDate day = Instant.ofEpochSecond(now / 1_000_000_000).atZone(ZoneOffset.UTC).toLocalDate();
    LocalDate first = day.withDayOfMonth(1);
    LocalDate quarter = first.withMonth((day.getMonthValue() - 1) / 3 * 3 + 1);
    LocalDate monday = day.with(TemporalAdjusters.previousOrSame(DayOfWeek.MONDAY));
    return switch (unit) {
      case "day" -> between(day, day.plusDays(1));
      case "week" -> between(monday, monday.plusWeeks(1));
      case "quarter" -> between(quarter, quarter.plusMonths(3));
      case "year" -> between(first.withMonth(1), first.withMonth(1).plusYears(1));
      default -> between(first, first.plusMonths(1));
    };
  }

  private static long[] between(LocalDate begin, LocalDate end) {
    long day = 86_400_000_000_000L;
    return new long[] {begin.toEpochDay() * day, end.toEpochDay() * day};
  }

  /** Returns the usage at an instant. */
  Usage at(@Nullable Object state, long now) {
    Usage last = state instanceof Usage kept ? kept : new Usage(limit, 0, 0, 0, now, List.of());
    // A window without used units has not begun.
    long start = last.used == 0 ? Long.MIN_VALUE / 2 : last.begin;
    long[] open = bounds.at(start, now);
    List<Held> held = last.held.stream().filter(one -> now < one.ends).toList();
    return new Usage(limit, open[0], open[1], open[0] == start ? last.used : 0, now, held);
  }

  @Override
  public Verdict decide(@Nullable Object state, long now, long cost) {
    Usage usage = at(state, now);
    if (cost > 0 && usage.taken() + cost > limit) {
      return usage.verdict(false, usage.roomAfter(cost), null);
    }
    Usage after = usage.with(usage.used + cost, usage.held);
    return after.verdict(true, 0, cost > 0 ? after : null);
  }

  @Override
  public @Nullable Object add(@Nullable Object state, long now, long units) {
    Usage usage = at(state, now);
    return usage.with(Math.max(0, usage.used + units), usage.held).stored();
  }

  @Override
  public long over(@Nullable Object state, long now) {
    return at(state, now).roomAfter(0);
  }
}
