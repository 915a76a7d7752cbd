package redisthrottle;

import org.jspecify.annotations.Nullable;

/** Allows some attempts without a delay; the delays after further attempts double. */
record FakeBackoff(long limit, long base, long longest, long forget) implements Algorithm {
  record Attempts(long last, long count) {}

  private Attempts at(@Nullable Object state, long now) {
    return state instanceof Attempts kept && now < kept.last + forget ? kept : new Attempts(now, 0);
  }

  private long delay(long count) {
    if (count < limit) {
      return 0;
    }
    long delay = base;
    for (long left = count; left > limit && delay < longest; left--) {
      delay *= 2;
    }
    return Math.min(delay, longest);
  }

  @Override
  public Verdict decide(@Nullable Object state, long now, long cost) {
    Attempts attempts = at(state, now);
    long retryAfter = over(state, now);
    boolean takes = retryAfter == 0 && cost > 0;
    if (takes) {
      attempts = new Attempts(now, attempts.count + 1);
    }
    long left = Math.max(0, limit - attempts.count);
    long resetAfter = attempts.count > 0 ? Algorithm.millis(attempts.last + forget - now) : 0;
    return new Verdict(
        retryAfter == 0, limit, left, retryAfter, resetAfter, takes ? attempts : null);
  }

  @Override
  public @Nullable Object add(@Nullable Object state, long now, long units) {
    Attempts attempts = at(state, now);
    long count = attempts.count + units;
    return count <= 0 ? null : new Attempts(units > 0 ? now : attempts.last, count);
  }

  @Override
  public long over(@Nullable Object state, long now) {
    Attempts attempts = at(state, now);
    return Algorithm.millis(Math.max(0, attempts.last + delay(attempts.count) - now));
  }
}
