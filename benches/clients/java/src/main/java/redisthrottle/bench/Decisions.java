package redisthrottle.bench;

import io.github.bucket4j.distributed.proxy.optimization.Optimization;
import io.github.bucket4j.distributed.proxy.optimization.Optimizations;
import io.lettuce.core.RedisURI;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/** The benchmark: a call of a limiter, which the callers of a job make one after the other. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class Decisions {
  /** The iterations that warm up, and the one that is measured. */
  static final int WARM_UPS = 3;

  private static final int ITERATIONS = WARM_UPS + 1;

  @Param("")
  public String job = "";

  @Param("")
  public String socket = "";

  private Contestant contestant;
  private int keys;
  private int iteration;
  private int firstKey;

  /** The calls of one thread in one iteration. */
  @State(Scope.Thread)
  public static class Caller {
    private long allowed;
    private long denied;

    @TearDown(Level.Iteration)
    public void report() {
      Calls.ALLOWED.addAndGet(allowed);
      Calls.DENIED.addAndGet(denied);
      allowed = 0;
      denied = 0;
    }
  }

  @Setup
  public void open() {
    Job given = Job.of(job);
    keys = Math.max(1, given.keys());
    String[] names =
        IntStream.range(0, keys * ITERATIONS)
            .mapToObj(at -> given.key() + "-" + at)
            .toArray(String[]::new);
    RedisURI uri = RedisURI.Builder.socket(socket).build();
    contestant = contestant(given, uri, names);
  }

  private static Contestant contestant(Job job, RedisURI uri, String[] keys) {
    return switch (job.contestant()) {
      case "ours" -> new Ours(job, uri, keys);
      case "bucket4j" -> new Bucket4j(job, uri, keys, Optimization.NONE_OPTIMIZED);
      case "bucket4j, batching" -> new Bucket4j(job, uri, keys, Optimizations.batching());
      default -> throw new IllegalArgumentException("there is no contestant " + job.contestant());
    };
  }

  /** Gives each iteration keys of its own, so that the warm-up takes nothing from its limits. */
  @Setup(Level.Iteration)
  public void begin() {
    firstKey = iteration++ * keys;
  }

  @TearDown
  public void close() {
    contestant.close();
  }

  @Benchmark
  public boolean decide(Caller caller) {
    int key = keys == 1 ? 0 : ThreadLocalRandom.current().nextInt(keys);
    boolean isAllowed = contestant.decide(firstKey + key);
    if (isAllowed) {
      caller.allowed++;
    } else {
      caller.denied++;
    }
    return isAllowed;
  }
}
