package redisthrottle.bench;

import com.fasterxml.jackson.core.JsonProcessingException;
import io.github.bucket4j.Bucket;
import io.lettuce.core.LettuceVersion;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.BenchmarkResult;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.Options;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;
import org.openjdk.jmh.util.Statistics;

/**
 * Measures calls per second and their latency through Lettuce with JMH, for {@code make
 * bench-clients}.
 *
 * <p>{@code Program SOCKET} prints its contestants as one line of JSON, then replies to each job on
 * standard input with one line. JMH starts a process for each job, which warms up first. For jobs
 * of the scenarios {@code local} and {@code forget}, the reply is the median of one call.
 */
public final class Program {
  /** The timeout of our client. It is long, because bucket4j has none. */
  static final Duration PATIENT = Duration.ofSeconds(10);

  private Program() {}

  /** Runs jobs until the input ends, and replies to each. */
  public static void main(String[] arguments) throws IOException, RunnerException {
    if (arguments.length != 1) {
      throw new IllegalArgumentException("usage: Program SOCKET");
    }
    // Only replies go to standard output.
    PrintStream output = System.out;
    System.setOut(System.err);
    write(output, Map.of("language", "java", "contestants", contestants()));
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      write(output, run(line, arguments[0]));
    }
  }

  private static void write(PrintStream output, Object reply) throws JsonProcessingException {
    output.println(Job.JSON.writeValueAsString(reply));
    output.flush();
  }

  private static Map<String, String> contestants() {
    String driver = "Lettuce " + LettuceVersion.getVersion().split("/")[0];
    String bucket4j =
        "bucket4j " + Bucket.class.getPackage().getImplementationVersion() + ", " + driver;
    Map<String, String> all = new TreeMap<>();
    all.put("ours", "clients/java, " + driver + ", token bucket");
    all.put("bucket4j", bucket4j + ", compare-and-swap");
    all.put("bucket4j, batching", bucket4j + ", concurrent calls of a key in one");
    return all;
  }

  private static Reply run(String line, String socket) throws RunnerException {
    Job job = Job.of(line);
    return switch (job.scenario()) {
      case "local" -> Memory.local(job, socket);
      case "forget" -> Memory.forget(job, socket);
      default -> measure(line, job, socket);
    };
  }

  private static Reply measure(String line, Job job, String socket) throws RunnerException {
    TimeValue time = TimeValue.milliseconds(Math.round(job.seconds() * 1000));
    Options options =
        new OptionsBuilder()
            .include(Decisions.class.getName())
            .param("job", line)
            .param("socket", socket)
            .threads(job.inFlight())
            .forks(1)
            .warmupIterations(job.isCold() ? 0 : Decisions.WARM_UPS)
            .warmupTime(time)
            .measurementIterations(1)
            .measurementTime(time)
            .addProfiler(GCProfiler.class)
            .addProfiler(Calls.class)
            .shouldFailOnError(true)
            .verbosity(VerboseMode.SILENT)
            .build();
    return reply(new Runner(options).runSingle().getAggregatedResult());
  }

  private static Reply reply(BenchmarkResult result) {
    Statistics us = result.getPrimaryResult().getStatistics();
    long allowed = Math.round(score(result, "allowed"));
    long denied = Math.round(score(result, "denied"));
    return new Reply(
        allowed + denied,
        Math.round(score(result, "warm")),
        score(result, "seconds"),
        score(result, "cpu"),
        us.getPercentile(50),
        us.getPercentile(99),
        allowed,
        denied,
        0,
        score(result, "gc.alloc.rate.norm"));
  }

  /** Returns the score that a profiler reported. */
  @SuppressWarnings("rawtypes")
  private static double score(BenchmarkResult result, String name) {
    Map<String, Result> all = result.getSecondaryResults();
    return all.get(name).getScore();
  }
}
