package redisthrottle;

import static redisthrottle.Checks.MILLISECOND;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The options of a limiter. A builder sets them before the limiter is made. */
final class Options {
  static final int PREFETCH_MAX = 10_000;
  private static final Duration DIAL_MIN = Duration.ofSeconds(1);
  private static final Duration HOUR = Duration.ofHours(1);

  Duration timeout = Duration.ofMillis(100);
  OnError onError = OnError.ALLOW;
  int maxInFlight = 256;
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
    copy.onError = onError;
    copy.maxInFlight = maxInFlight;
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

  /**
   * Returns the time after which a dial counts as failed.
   *
   * @param isFirst true if it may load the driver's classes
   */
  Duration patience(boolean isFirst) {
    Duration patience = timeout.compareTo(DIAL_MIN) > 0 ? timeout : DIAL_MIN;
    return isFirst ? patience.multipliedBy(2) : patience;
  }

  void setTimeout(Duration given) {
    timeout = Checks.between("timeout", given, MILLISECOND, Duration.ofSeconds(60));
  }

  void setBreaker(int failures, Duration pause) {
    breakerFailures = (int) Checks.integer("breakerFailures", failures, 1, 1_000_000);
    breakerPause = Checks.between("breakerPause", pause, MILLISECOND, HOUR);
  }

  void setDenialCache(int denials, Duration longest) {
    denialCache = (int) Checks.integer("denialCache", denials, 0, 10_000_000);
    denialCacheMax = Checks.between("denialCacheMax", longest, MILLISECOND, HOUR);
  }

  void setHmacSecret(String secret) {
    hmacSecret = Checks.present("hmacSecret", secret).getBytes(StandardCharsets.UTF_8);
  }
}
