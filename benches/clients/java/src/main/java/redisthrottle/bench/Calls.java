package redisthrottle.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.openjdk.jmh.infra.BenchmarkParams;
import org.openjdk.jmh.infra.IterationParams;
import org.openjdk.jmh.profile.InternalProfiler;
import org.openjdk.jmh.results.AggregationPolicy;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.ScalarResult;
import org.openjdk.jmh.runner.IterationType;

/** Reports the calls of an iteration, and the time and processor time from its start to its end. */
public final class Calls implements InternalProfiler {
  static final AtomicLong ALLOWED = new AtomicLong();
  static final AtomicLong DENIED = new AtomicLong();

  private static final OperatingSystemMXBean SYSTEM =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

  private long allBefore;
  private long began;
  private long beganCpu;

  @Override
  public String getDescription() {
    return "the calls and the processor time of an iteration";
  }

  @Override
  public void beforeIteration(BenchmarkParams benchmark, IterationParams iteration) {
    if (iteration.getType() == IterationType.MEASUREMENT) {
      allBefore = ALLOWED.get() + DENIED.get();
      ALLOWED.set(0);
      DENIED.set(0);
    }
    began = System.nanoTime();
    beganCpu = SYSTEM.getProcessCpuTime();
  }

  @Override
  public Collection<? extends Result<?>> afterIteration(
      BenchmarkParams benchmark, IterationParams iteration, IterationResult result) {
    double tookNs = System.nanoTime() - began;
    double cpuNs = SYSTEM.getProcessCpuTime() - beganCpu;
    double second = TimeUnit.SECONDS.toNanos(1);
    return List.of(
        scalar("allowed", ALLOWED.get()),
        scalar("denied", DENIED.get()),
        scalar("warm", allBefore),
        scalar("seconds", tookNs / second),
        scalar("cpu", cpuNs / second));
  }

  private static ScalarResult scalar(String name, double value) {
    return new ScalarResult(name, value, "", AggregationPolicy.SUM);
  }
}
