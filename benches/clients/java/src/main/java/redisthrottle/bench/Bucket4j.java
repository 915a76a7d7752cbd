package redisthrottle.bench;

import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.BucketProxy;
import io.github.bucket4j.distributed.proxy.RemoteBucketBuilder;
import io.github.bucket4j.distributed.proxy.optimization.Optimization;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;

/**
 * bucket4j over one connection of Lettuce with keys of bytes. It reads a bucket, decides in this
 * process, and writes the bucket with a compare-and-swap in a script; it repeats both if another
 * call came between. There is one proxy for each key, created before the calls.
 */
final class Bucket4j implements Contestant {
  private final RedisClient redis;
  private final BucketProxy[] proxies;

  Bucket4j(Job job, RedisURI uri, String[] keys, Optimization optimization) {
    redis = RedisClient.create();
    StatefulRedisConnection<byte[], byte[]> connection =
        redis.connect(ByteArrayCodec.INSTANCE, uri);
    BucketConfiguration limit =
        BucketConfiguration.builder()
            .addLimit(each -> each.capacity(job.limit()).refillGreedy(job.limit(), job.period()))
            .build();
    RemoteBucketBuilder<byte[]> buckets =
        Bucket4jLettuce.casBasedBuilder(connection)
            .build()
            .builder()
            .withOptimization(optimization);
    proxies =
        Arrays.stream(keys)
            .map(key -> buckets.build(key.getBytes(StandardCharsets.UTF_8), () -> limit))
            .toArray(BucketProxy[]::new);
  }

  @Override
  public boolean decide(int key) {
    return proxies[key].tryConsume(1);
  }

  @Override
  public void close() {
    redis.shutdown(Duration.ZERO, Program.PATIENT);
  }
}
