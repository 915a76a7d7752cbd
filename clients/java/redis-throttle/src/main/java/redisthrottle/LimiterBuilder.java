package redisthrottle;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import java.util.function.DoubleSupplier;
import java.util.function.Supplier;

/** Sets the options of a limiter. An invalid value throws an {@link InvalidArgumentException}. */
public final class LimiterBuilder {
  private static final int COUNT_MAX = 1_000_000;
  private static final Duration HOUR = Duration.ofHours(1);

  private final Connector connector;
  private final Supplier<Clock> clock;
  private final Options options = new Options();
  private Executor executor;
  private DoubleSupplier jitter = () -> ThreadLocalRandom.current().nextDouble(0.8, 1);

  LimiterBuilder(Connector connector, Supplier<Clock> clock, Executor executor) {
    this.connector = connector;
    this.clock = clock;
    this.executor = executor;
  }

  static Executor defaultExecutor() {
    // java.util.concurrent.ForkJoinPool.common.parallelism=0 leaves the pool without threads.
    return ForkJoinPool.getCommonPoolParallelism() > 0
        ? ForkJoinPool.commonPool()
        : new CompletableFuture<Void>().defaultExecutor();
  }

  private static Duration time(String option, Duration given) {
    return Checks.between(option, given, Checks.MILLISECOND, HOUR);
  }

  private static int count(String option, int given, int least) {
    return (int) Checks.integer(option, given, least, COUNT_MAX);
  }

  /**
   * Sets the most that a call takes in all, from 1 ms to 1 h; 1 s by default. Only the first dial
   * to a node, for which calls wait up to 5 s, comes on top.
   */
  public LimiterBuilder timeout(Duration timeout) {
    options.timeout = time("timeout", timeout);
    options.isTimeoutSet = true;
    return this;
  }

  /**
   * Sets the time after which a node that sends nothing is unresponsive, from 1 ms to the time-out;
   * 100 ms by default, or the time-out if only that is set. It must exceed a round trip and the
   * longest stall of the server.
   */
  public LimiterBuilder silence(Duration silence) {
    options.silence = time("silence", silence);
    return this;
  }

  /** Sets the decision on calls without a final reply; {@link OnError#ALLOW} by default. */
  public LimiterBuilder onError(OnError onError) {
    options.onError = Checks.present("onError", onError);
    return this;
  }

  /**
   * Sets the maximum number of commands that were sent to a node and have no reply; 256 by default.
   * Further calls stand in line.
   */
  public LimiterBuilder maxInFlight(int commands) {
    options.maxInFlight = count("maxInFlight", commands, 1);
    return this;
  }

  /**
   * Sets the maximum number of calls in line for a node; 16,384 by default. {@link OnError} decides
   * further calls at once.
   */
  public LimiterBuilder maxWaiting(int calls) {
    options.maxWaiting = count("maxWaiting", calls, 0);
    return this;
  }

  /**
   * Sets the number of keys whose last denial is remembered, to deny further calls in a rush and
   * without a final reply; 10,000 by default, and 0 for none.
   */
  public LimiterBuilder knownDenials(int keys) {
    options.knownDenials = count("knownDenials", keys, 0);
    return this;
  }

  /**
   * Sets whether decisions without the server are logged as a warning, with their number, at most
   * once per second and reason; true by default.
   */
  public LimiterBuilder logErrors(boolean isOn) {
    options.isLogging = isOn;
    return this;
  }

  /**
   * Sets the number of failures in a row after which the calls to a node pause, and the length of
   * the pause, after which one call probes the node; 5 and 1 s by default.
   */
  public LimiterBuilder breaker(int failures, Duration pause) {
    options.breakerFailures = count("breakerFailures", failures, 1);
    options.breakerPause = time("breakerPause", pause);
    return this;
  }

  /**
   * Keeps up to this number of denials in this process, each until its retry time but at most for
   * {@code longest}. If another process deletes or refunds the key, a kept denial still applies
   * until then. The default is no cache.
   */
  public LimiterBuilder denialCache(int denials, Duration longest) {
    options.denialCache = count("denialCache", denials, 0);
    options.denialCacheMax = time("denialCacheMax", longest);
    return this;
  }

  /** Sets the permits that one call fetches; see {@link Rule#prefetch}. The default is 1. */
  public LimiterBuilder prefetch(int permits) {
    options.prefetch = (int) Checks.integer("prefetch", permits, 1, Checks.PREFETCH_MAX);
    return this;
  }

  /** Sets the code that decides on the server; {@link Backend#AUTO} by default. */
  public LimiterBuilder backend(Backend backend) {
    options.backend = Checks.present("backend", backend);
    return this;
  }

  /** Sets the first part of all keys; {@code rl} by default. If empty, keys begin with the rule. */
  public LimiterBuilder prefix(String prefix) {
    options.prefix = Checks.present("prefix", prefix);
    return this;
  }

  /** Puts the subject in braces, so that its keys under all rules are in one slot of a cluster. */
  public LimiterBuilder hashTag() {
    options.isTagged = true;
    return this;
  }

  /**
   * Sets the secret, at least 16 bytes, with which subjects and tags are hashed. Keys then have no
   * raw data.
   */
  public LimiterBuilder hmacSecret(String secret) {
    options.hmacSecret = Checks.present("hmacSecret", secret).getBytes(StandardCharsets.UTF_8);
    return this;
  }

  /**
   * Sets a function that gets an event of each decision, charge, refund, end of an item of an
   * admission, and rejection. The thread of a blocking call runs it before the call returns, the
   * executor before the result of an asynchronous one, and a thread of the limiter after ends that
   * have no caller. So it may run in several threads at a time, and it delays only its own call. If
   * that thread has more than 10,000 events to report, it drops further ones. In the function, the
   * blocking methods of the limiter throw an {@link IllegalStateException}. What it throws is
   * logged.
   */
  public LimiterBuilder onDecision(Consumer<Event> hook) {
    options.onDecision = Checks.present("onDecision", hook);
    return this;
  }

  /**
   * Sets the executor on which the results of asynchronous methods arrive. The default is the
   * common pool, or a thread for each result if that pool has no threads.
   */
  public LimiterBuilder executor(Executor executor) {
    this.executor = Checks.present("executor", executor);
    return this;
  }

  LimiterBuilder jitter(DoubleSupplier factor) {
    this.jitter = factor;
    return this;
  }

  /** Returns the options, which have been validated. */
  Options options() {
    return options;
  }

  /**
   * Returns the limiter, and begins its first dial; see {@link Limiter#ready}.
   *
   * @throws InvalidArgumentException if the silence is longer than the time-out
   */
  public Limiter build() {
    Steps steps = new Steps(connector, options.copy().checked(), clock, jitter, executor);
    steps.dial();
    return new Limiter(steps);
  }
}
