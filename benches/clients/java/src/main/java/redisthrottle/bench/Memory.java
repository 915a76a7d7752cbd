package redisthrottle.bench;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.Arrays;
import java.util.function.IntConsumer;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.OnError;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;

/** Measures calls whose cost depends on what the limiter keeps in memory. */
final class Memory {
  /** The number of calls of which the median is taken. */
  private static final int MEDIAN_CALLS = 1000;

  private Memory() {}

  private static double medianUs(int calls, IntConsumer call) {
    long[] tookNs = new long[calls];
    for (int number = 0; number < calls; number++) {
      long began = System.nanoTime();
      call.accept(number);
      tookNs[number] = System.nanoTime() - began;
    }
    Arrays.sort(tookNs);
    return tookNs[calls / 2] / 1e3;
  }

  /**
   * Measures a sliding window in this process, after calls of its key. No server listens at the
   * client's address.
   */
  static Reply local(Job job, String socket) {
    try (RedisClient redis = RedisClient.create();
        Limiter limiter =
            Limiter.builder(
                    LettuceConnector.of(redis, RedisURI.Builder.socket(socket + ".down").build()))
                .onError(OnError.LOCAL)
                .build()) {
      Item item = Rule.sliding("local", 2L * job.calls(), Duration.ofHours(1)).of(job.key());
      medianUs(job.calls(), number -> limiter.check(item));
      double p50Us = medianUs(MEDIAN_CALLS, number -> limiter.check(item));
      return Reply.ofMedian(p50Us, limiter.counters().denied());
    }
  }

  /** Measures forget and refund together, with a number of denials in the cache. */
  static Reply forget(Job job, String socket) {
    try (RedisClient redis = RedisClient.create();
        Limiter limiter =
            Limiter.builder(LettuceConnector.of(redis, RedisURI.Builder.socket(socket).build()))
                .timeout(Program.PATIENT)
                .denialCache(job.denials(), Duration.ofHours(1))
                .build()) {
      Rule rule = Rule.fixed("forget", 1, Duration.ofHours(1));
      for (int number = 0; number < job.denials(); number++) {
        limiter.check(rule.of(Integer.toString(number)).cost(2));
      }
      double bothUs =
          medianUs(
              MEDIAN_CALLS,
              number -> {
                Item item = rule.of(Integer.toString(number));
                limiter.forget(item);
                limiter.refund(item);
              });
      return Reply.ofMedian(bothUs / 2, limiter.counters().degraded());
    }
  }
}
