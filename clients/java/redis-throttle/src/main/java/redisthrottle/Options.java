package redisthrottle;

import java.time.Duration;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The options of a limiter. A builder sets them before the limiter is built. */
final class Options implements Cloneable {
  private static final Duration DIAL_MIN = Duration.ofSeconds(1);
  private static final Duration DIAL_PAUSE_MAX = Duration.ofSeconds(1);
  private static final Duration FIRST_DIAL = Duration.ofSeconds(5);
  private static final Duration SILENCE = Duration.ofMillis(100);

  Duration timeout = Duration.ofSeconds(1);
  @Nullable Duration silence;
  boolean isTimeoutSet;
  OnError onError = OnError.ALLOW;
  int maxInFlight = 256;
  int maxWaiting = 16_384;
  int knownDenials = 10_000;
  boolean isLogging = true;
  int breakerFailures = 5;
  Duration breakerPause = Duration.ofSeconds(1);
  int denialCache;
  Duration denialCacheMax = Duration.ofSeconds(1);
  int prefetch = 1;
  Backend backend = Backend.AUTO;
  String prefix = "rl";
  boolean isTagged;
  byte @Nullable [] hmacSecret;
  @Nullable Consumer<Event> onDecision;

  /** Returns the options as they are now. */
  Options copy() {
    try {
      return (Options) clone();
    } catch (CloneNotSupportedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns the time after which a node that sends nothing is unresponsive. */
  Duration silence() {
    if (silence != null) {
      return silence;
    }
    return isTimeoutSet ? timeout : SILENCE;
  }

  /**
   * Returns the time after which a dial counts as failed.
   *
   * @param isFirst true if it may load the driver's classes
   */
  Duration patience(boolean isFirst) {
    Duration least = isFirst ? FIRST_DIAL : DIAL_MIN;
    return timeout.compareTo(least) > 0 ? timeout : least;
  }

  /** Returns the time between a failed dial and the next one. */
  Duration dialPause() {
    return breakerPause.compareTo(DIAL_PAUSE_MAX) > 0 ? DIAL_PAUSE_MAX : breakerPause;
  }

  /** Throws if options contradict each other. */
  Options checked() {
    if (silence().compareTo(timeout) > 0) {
      String text = "at most the timeout of " + timeout.toMillis() + " ms; it is ";
      throw Checks.invalid("silence", text + silence().toMillis() + " ms");
    }
    return this;
  }
}
