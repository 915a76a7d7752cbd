package redisthrottle.bench;

import com.fasterxml.jackson.annotation.JsonProperty;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import redisthrottle.CallOptions;
import redisthrottle.Decision;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;

/**
 * Makes calls as a job describes, for {@code make bench-clients ONLY=pressure}; {@code
 * python/pressure.py} describes jobs and replies.
 *
 * <p>{@code Pressure HOST:PORT [async]} makes blocking calls on threads, or asynchronous ones.
 */
public final class Pressure {
  private static final ExecutorService THREADS = Executors.newCachedThreadPool();

  private final Work job;
  private final Rule rule;
  private final Limiter limiter;
  private final double beganMs = System.currentTimeMillis();
  private final long beganNs = System.nanoTime();
  private final AtomicLong next = new AtomicLong();
  private final Map<String, List<Long>> calls = new HashMap<>();

  /** The numbers of a rule. */
  record Terms(String kind, long limit, long rate, @JsonProperty("period_s") long periodS) {
    Rule rule() {
      Duration period = Duration.ofSeconds(periodS);
      return kind.equals("fixed")
          ? Rule.fixed("bench", limit, period)
          : Rule.gcra("bench", limit, rate, period);
    }
  }

  /** A line of the input. */
  record Work(
      String name,
      Terms rule,
      long keys,
      long calls,
      int callers,
      double seconds,
      double rate,
      long burst,
      @JsonProperty("peek_every") long peekEvery) {}

  private Pressure(Work job, Limiter limiter) {
    this.job = job;
    this.rule = job.rule().rule();
    this.limiter = limiter;
  }

  /** Runs jobs until the input ends, and replies to each. The limiter begins with the first job. */
  public static void main(String[] arguments) throws IOException {
    boolean isAsync = arguments.length > 1 && arguments[1].equals("async");
    RedisClient redis = RedisClient.create();
    RedisURI uri = RedisURI.create("redis://" + arguments[0]);
    Limiter limiter = null;
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      Work job = Job.JSON.readValue(line, Work.class);
      if (limiter == null) {
        limiter = Limiter.builder(LettuceConnector.of(redis, uri)).build();
      }
      Pressure run = new Pressure(job, limiter);
      run.all(isAsync);
      Object reply = Map.of("began_ms", run.beganMs, "calls", run.calls);
      System.out.println(Job.JSON.writeValueAsString(reply));
    }
    if (limiter != null) {
      limiter.close();
    }
    System.exit(0);
  }

  private long nowUs() {
    return (System.nanoTime() - beganNs) / 1000;
  }

  private void all(boolean isAsync) {
    List<CompletableFuture<Void>> started = new ArrayList<>();
    if (job.rate() > 0) {
      for (long number = 0; number < job.calls(); number++) {
        long call = number;
        LockSupport.parkNanos((long) ((number - job.burst()) / job.rate() * 1e9) - nowUs() * 1000);
        started.add(
            isAsync ? callAsync(call) : CompletableFuture.runAsync(() -> call(call), THREADS));
      }
    } else {
      for (int at = 0; at < job.callers(); at++) {
        started.add(isAsync ? callerAsync() : CompletableFuture.runAsync(this::caller, THREADS));
      }
    }
    started.forEach(CompletableFuture::join);
  }

  /** Returns the number of the next call of a caller; -1 if there is none. */
  private long next() {
    if (job.seconds() > 0 && nowUs() >= job.seconds() * 1e6) {
      return -1;
    }
    long number = next.getAndIncrement();
    return number < job.calls() ? number : -1;
  }

  private void caller() {
    for (long number = next(); number >= 0; number = next()) {
      call(number);
    }
  }

  private CompletableFuture<Void> callerAsync() {
    long number = next();
    // Always on another thread, because a call that is decided at once would otherwise recurse.
    return number < 0
        ? CompletableFuture.completedFuture(null)
        : callAsync(number).thenComposeAsync(ended -> callerAsync());
  }

  private boolean isPeek(long number) {
    return job.peekEvery() > 0 && number % job.peekEvery() == 0;
  }

  private Item item(long number) {
    return rule.of(job.name() + "-" + number % job.keys());
  }

  private void call(long number) {
    long began = nowUs();
    Decision decision = null;
    Throwable failure = null;
    try {
      Item item = item(number);
      decision = isPeek(number) ? limiter.peek(item) : limiter.check(item);
    } catch (RuntimeException e) {
      failure = e;
    }
    add(number, began, decision, failure);
  }

  private CompletableFuture<Void> callAsync(long number) {
    long began = nowUs();
    Item item = item(number);
    return (isPeek(number) ? limiter.peekAsync(item, CallOptions.NONE) : limiter.checkAsync(item))
        .<Void>handle(
            (decision, failure) -> {
              add(number, began, decision, failure);
              return null;
            })
        .toCompletableFuture();
  }

  private void add(long number, long began, Decision decision, Throwable failure) {
    long took = nowUs() - began;
    String outcome = isPeek(number) ? "peek " : "";
    if (failure != null) {
      outcome += "raised " + failure;
    } else {
      outcome += (decision.allowed() ? "allowed " : "denied ") + decision.source().word();
      outcome += decision.reason() == null ? "" : " " + decision.reason().word();
    }
    synchronized (calls) {
      List<Long> of = calls.computeIfAbsent(outcome, any -> new ArrayList<>());
      of.add(began);
      of.add(took);
    }
  }
}
