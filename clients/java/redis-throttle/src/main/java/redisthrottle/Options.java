package redisthrottle;

import static redisthrottle.Checks.MILLISECOND;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The options of a limiter. A builder sets them before the limiter is made. */
final class Options {
  private static final int COUNT_MAX = 1_000_000;
  private static final Duration DIAL_MIN = Duration.ofSeconds(1);
  private static final Duration DIAL_PAUSE_MAX = Duration.ofSeconds(1);
  private static final Duration FIRST_DIAL = Duration.ofSeconds(5);
  private static final Duration SILENCE = Duration.ofMillis(100);
  private static final Duration HOUR = Duration.ofHours(1);

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

  Options copy() {
    Options copy = new Options();
    copy.timeout = timeout;
    copy.silence = silence;
    copy.isTimeoutSet = isTimeoutSet;
    copy.onError = onError;
    copy.maxInFlight = maxInFlight;
    copy.maxWaiting = maxWaiting;
    copy.knownDenials = knownDenials;
    copy.isLogging = isLogging;
    copy.breakerFailures = breakerFailures;
    copy.breakerPause = breakerPause;
    copy.denialCache = denialCache;
    copy.denialCacheMax = denialCacheMax;
    copy.prefetch = prefetch;
    copy.backend = backend;
    copy.prefix = prefix;
    copy.isTagged = isTagged;
    copy.hmacSecret = hmacSecret == null ? null : Arrays.copyOf(hmacSecret, hmacSecret.length);
    copy.onDecision = onDecision;
    return copy;
  }

  /** Returns the time after which a node that says nothing does not answer. */
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

  void setTimeout(Duration given) {
    timeout = Checks.between("timeout", given, MILLISECOND, HOUR);
    isTimeoutSet = true;
  }

  void setSilence(Duration given) {
    silence = Checks.between("silence", given, MILLISECOND, HOUR);
  }

  void setMaxInFlight(int commands) {
    maxInFlight = (int) Checks.integer("maxInFlight", commands, 1, COUNT_MAX);
  }

  void setMaxWaiting(int calls) {
    maxWaiting = (int) Checks.integer("maxWaiting", calls, 0, COUNT_MAX);
  }

  void setKnownDenials(int keys) {
    knownDenials = (int) Checks.integer("knownDenials", keys, 0, COUNT_MAX);
  }

  void setBreaker(int failures, Duration pause) {
    breakerFailures = (int) Checks.integer("breakerFailures", failures, 1, COUNT_MAX);
    breakerPause = Checks.between("breakerPause", pause, MILLISECOND, HOUR);
  }

  void setDenialCache(int denials, Duration longest) {
    denialCache = (int) Checks.integer("denialCache", denials, 0, COUNT_MAX);
    denialCacheMax = Checks.between("denialCacheMax", longest, MILLISECOND, HOUR);
  }

  /** Throws if options contradict each other. */
  Options checked() {
    if (silence().compareTo(timeout) > 0) {
      String text = "at most the timeout of " + timeout.toMillis() + " ms; it is ";
      throw Checks.invalid("silence", text + silence().toMillis() + " ms");
    }
    return this;
  }

  void setHmacSecret(String secret) {
    hmacSecret = Checks.present("hmacSecret", secret).getBytes(StandardCharsets.UTF_8);
  }
}
