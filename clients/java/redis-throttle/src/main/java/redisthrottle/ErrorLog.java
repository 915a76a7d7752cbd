package redisthrottle;

import java.util.EnumMap;
import java.util.Map;

/** Logs decisions without an answer: their number by reason, at most once a second. */
final class ErrorLog {
  private static final System.Logger LOGGER = System.getLogger("redisthrottle");
  private static final long PAUSE_NS = 1_000_000_000;

  private final Loop loop;
  private final boolean isOn;

  /** The number of decisions since the last line of a reason, for one pause after each line. */
  private final Map<Reason, Long> counts = new EnumMap<>(Reason.class);

  ErrorLog(Loop loop, boolean isOn) {
    this.loop = loop;
    this.isOn = isOn;
  }

  void add(Reason reason) {
    if (!isOn) {
      return;
    }
    if (counts.containsKey(reason)) {
      counts.merge(reason, 1L, Long::sum);
    } else {
      log(reason, 1);
    }
  }

  private void log(Reason reason, long count) {
    String line = "redis-throttle: " + count + " calls decided without an answer: " + reason.word();
    loop.reports.send(() -> LOGGER.log(System.Logger.Level.WARNING, line));
    counts.put(reason, 0L);
    loop.after(PAUSE_NS, () -> pause(reason));
  }

  private void pause(Reason reason) {
    Long count = counts.remove(reason);
    if (count != null && count > 0) {
      log(reason, count);
    }
  }

  /** Logs the rest. */
  void close() {
    Map<Reason, Long> rest = new EnumMap<>(counts);
    counts.clear();
    rest.forEach(
        (reason, count) -> {
          if (count > 0) {
            log(reason, count);
          }
        });
  }
}
