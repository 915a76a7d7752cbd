package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Runs a breaker that two failures open for 100 ms. */
class BreakerTest {
  private static final long MS = 1_000_000;
  private final ManualClock clock = new ManualClock();
  private final Breaker breaker = new Breaker(new Loop(clock.view()), 2, 100 * MS);

  private void failAt(long ms) {
    clock.runUntil(ms * MS);
    breaker.failed(clock.nanos());
  }

  private void assertOpensUntil(long ms) {
    clock.runUntil(ms * MS - 1);
    assertTrue(breaker.isOpen());
    clock.runUntil(ms * MS);
    assertFalse(breaker.isOpen());
  }

  @Test
  void a_failure_during_the_pause_does_not_prolong_it() {
    failAt(0);
    failAt(10);
    failAt(60);
    assertOpensUntil(110);
    assertTrue(breaker.enter());
  }
}
