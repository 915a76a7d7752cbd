package redisthrottle;

import java.time.Duration;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/**
 * Counts decisions, ends of admissions and rejections, and reports them to the application and the
 * log, outside of the loop, because its functions may block.
 */
final class Events {
  private static final System.Logger LOGGER = System.getLogger("redisthrottle");

  /** The time between two lines of the log with the same reason. */
  private static final long PAUSE_NS = 1_000_000_000;

  /** The instant of a call that was not sent. */
  static final long NOT_SENT = Long.MIN_VALUE;

  private final Exchange exchange;
  private final Loop loop;
  private final Keys keys;
  private final boolean isLogging;
  private final List<Consumer<Event>> hooks = new CopyOnWriteArrayList<>();

  /** The number of decisions since the last line of a reason, for one pause after each line. */
  private final Map<Reason, Long> unlogged = new EnumMap<>(Reason.class);

  private final AtomicLong allowed = new AtomicLong();
  private final AtomicLong denied = new AtomicLong();
  private final AtomicLong degraded = new AtomicLong();
  private final AtomicLong fromHere = new AtomicLong();
  private final AtomicLong rejected = new AtomicLong();
  private final AtomicLong unsettled = new AtomicLong();

  Events(Exchange exchange, Keys keys) {
    this.exchange = exchange;
    this.loop = exchange.loop;
    this.keys = keys;
    this.isLogging = exchange.options.isLogging;
    if (exchange.options.onDecision != null) {
      hooks.add(exchange.options.onDecision);
    }
  }

  void addHook(Consumer<Event> hook) {
    hooks.add(hook);
  }

  Counters counters() {
    return new Counters(
        allowed.get(),
        denied.get(),
        degraded.get(),
        fromHere.get(),
        rejected.get(),
        unsettled.get());
  }

  void countUnsettled() {
    unsettled.incrementAndGet();
  }

  /** Sends a call that {@link OnError} does not decide. Counts a rejection. */
  CompletableFuture<@Nullable Object> send(Words call, Signal signal, List<Keyed> all) {
    return noting(all, () -> exchange.send(call, Turn.NONE, signal));
  }

  /** Counts the rejection of a call. */
  CompletableFuture<@Nullable Object> noting(
      List<Keyed> all, Supplier<CompletableFuture<@Nullable Object>> send) {
    long calledAt = loop.nanos();
    return Errors.recovered(
        send.get(), error -> CompletableFuture.failedFuture(noteRejection(error, all, calledAt)));
  }

  /** Counts and reports a decision. */
  Decision counted(EventKind kind, Decision decision, List<Keyed> all, long calledAt) {
    if (kind != EventKind.PEEK) {
      (decision.allowed() ? allowed : denied).incrementAndGet();
      if (decision.degraded()) {
        degraded.incrementAndGet();
      } else if (decision.source() == Source.LOCAL) {
        fromHere.incrementAndGet();
      }
    }
    if (decision.error() != null && isLogging) {
      Reason reason = decision.error().reason();
      if (unlogged.computeIfPresent(reason, (one, count) -> count + 1) == null) {
        log(reason, 1);
      }
    }
    report(kind, decision, null, all, calledAt);
    return decision;
  }

  /**
   * Counts and reports the error if the server rejected the command. Returns the error, which then
   * names the rules.
   */
  Throwable noteRejection(Throwable error, List<Keyed> all, long calledAt) {
    if (!(error instanceof CommandRejectedException rejection)) {
      return error;
    }
    CommandRejectedException named = rejection.naming(all.stream().map(Keyed::rule).toList());
    rejected.incrementAndGet();
    report(EventKind.REJECTED, null, named, all, calledAt);
    return named;
  }

  /**
   * Has each hook called once, with the rule that decided. Call it in the loop. An error of a hook
   * is logged.
   */
  void report(
      EventKind kind,
      @Nullable Decision decision,
      @Nullable RuntimeException error,
      List<Keyed> all,
      long calledAt) {
    if (hooks.isEmpty() || all.isEmpty()) {
      return;
    }
    int deciding = decision == null ? 0 : decision.deciding();
    Keyed keyed = all.get(deciding < all.size() ? deciding : 0);
    boolean isDegraded = decision != null && decision.degraded();
    Duration latency = Duration.ofNanos(calledAt == NOT_SENT ? 0 : loop.nanos() - calledAt);
    String hash = keys.keyHash(keyed.subject());
    Event event = new Event(kind, decision, keyed.rule(), hash, latency, isDegraded, error);
    loop.reports.add(() -> call(event));
  }

  private void call(Event event) {
    for (Consumer<Event> hook : hooks) {
      try {
        hook.accept(event);
      } catch (RuntimeException | Error e) {
        LOGGER.log(System.Logger.Level.ERROR, "redis-throttle: the hook of decisions failed", e);
      }
    }
  }

  /** Logs the number of decisions without the server, at most once per second and reason. */
  private void log(Reason reason, long count) {
    String line =
        "redis-throttle: " + count + " calls decided without the server: " + reason.word();
    loop.reports.send(() -> LOGGER.log(System.Logger.Level.WARNING, line));
    unlogged.put(reason, 0L);
    loop.after(PAUSE_NS, () -> logRest(reason));
  }

  private void logRest(Reason reason) {
    Long count = unlogged.remove(reason);
    if (count != null && count > 0) {
      log(reason, count);
    }
  }

  /** Logs what is not logged yet. */
  void close() {
    List.copyOf(unlogged.keySet()).forEach(this::logRest);
  }
}
