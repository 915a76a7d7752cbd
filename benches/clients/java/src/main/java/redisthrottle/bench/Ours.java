package redisthrottle.bench;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import redisthrottle.Decision;
import redisthrottle.Limiter;
import redisthrottle.LimiterBuilder;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;

/** The limiter of this repository. Its end refunds unused permits. */
final class Ours implements Contestant {
  private static final int DENIALS_KEPT = 1000;

  private final RedisClient redis;
  private final Limiter limiter;
  private final Rule rule;
  private final String[] keys;

  Ours(Job job, RedisURI uri, String[] keys) {
    this.keys = keys;
    redis = RedisClient.create();
    LimiterBuilder builder =
        Limiter.builder(LettuceConnector.of(redis, uri))
            .timeout(Program.PATIENT)
            .prefetch(Math.max(1, job.prefetch()));
    if (job.hasDenialCache()) {
      builder.denialCache(DENIALS_KEPT, Duration.ofSeconds(1));
    }
    limiter = builder.build();
    limiter.ready();
    rule = Rule.tokenBucket("bench", job.limit(), job.limit(), job.period());
  }

  @Override
  public boolean decide(int key) {
    Decision d = limiter.check(rule.of(keys[key]));
    if (d.degraded()) {
      throw new IllegalStateException("no reply: " + d);
    }
    return d.allowed();
  }

  @Override
  public void close() {
    limiter.close();
    redis.shutdown(Duration.ZERO, Program.PATIENT);
  }
}
