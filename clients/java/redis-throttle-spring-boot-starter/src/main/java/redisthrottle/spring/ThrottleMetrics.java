package redisthrottle.spring;

import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.Meter.MeterProvider;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import redisthrottle.Decision;
import redisthrottle.Event;
import redisthrottle.Event.EventKind;
import redisthrottle.Limiter;
import redisthrottle.Source;

/**
 * The metrics of limiters, as all clients have them. In Prometheus their names begin with {@code
 * redis_throttle_}.
 *
 * <p>Checks and leases are counted; charges, refunds and peeks only if the server rejects them. Of
 * several rules in one call, the deciding rule is counted. At most 100 rules have a name of their
 * own; the others are counted together as {@code (other)}. Keys and subjects are never named.
 */
public final class ThrottleMetrics implements MeterBinder {
  private static final int RULES_MAX = 100;
  private static final String OTHER = "(other)";
  private static final Duration[] LATENCIES =
      LongStream.of(
              100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
              1_000_000)
          .mapToObj(micros -> Duration.ofNanos(micros * 1000))
          .toArray(Duration[]::new);

  private final List<Limiter> limiters;

  /** Makes the metrics of limiters, which get a hook when the metrics are bound. */
  public ThrottleMetrics(List<Limiter> limiters) {
    this.limiters = List.copyOf(limiters);
  }

  @Override
  public void bindTo(MeterRegistry registry) {
    Meters meters = new Meters(registry);
    for (Limiter limiter : limiters) {
      AtomicInteger open = meters.breakers();
      limiter.onDecision(
          event -> {
            open.set(limiter.openBreakers());
            meters.record(event);
          });
    }
  }

  /** The meters of a registry. */
  private static final class Meters {
    private final MeterProvider<Counter> checks;
    private final MeterProvider<Counter> degraded;
    private final MeterProvider<Timer> latency;
    private final RemainingRatio ratio;
    private final List<AtomicInteger> open = new ArrayList<>();
    private final Set<String> rules = new HashSet<>();

    Meters(MeterRegistry registry) {
      checks =
          Counter.builder("redis.throttle.checks")
              .description("Checks and leases, and rejected calls.")
              .withRegistry(registry);
      degraded =
          Counter.builder("redis.throttle.degraded")
              .description("Checks that on_error decided without the server.")
              .withRegistry(registry);
      latency =
          Timer.builder("redis.throttle.latency")
              .description("Time that a check took in the application.")
              .serviceLevelObjectives(LATENCIES)
              .withRegistry(registry);
      Gauge breaker =
          Gauge.builder("redis.throttle.breaker.open", this, Meters::openBreakers)
              .description("Circuit breakers open at the last decision.")
              .strongReference(true)
              .register(registry);
      ratio = new RemainingRatio(registry, breaker);
    }

    synchronized AtomicInteger breakers() {
      AtomicInteger one = new AtomicInteger();
      open.add(one);
      return one;
    }

    private synchronized double openBreakers() {
      return open.stream().mapToInt(AtomicInteger::get).sum();
    }

    void record(Event event) {
      String rule = labelOf(event.rule().name());
      Decision decision = event.decision();
      if (event.kind() == EventKind.REJECTED) {
        checks.withTags("rule", rule, "outcome", "rejected", "source", "server").increment();
      } else if (decision != null
          && (event.kind() == EventKind.CHECK || event.kind() == EventKind.LEASE)) {
        decided(rule, decision, event.latency());
      }
    }

    private void decided(String rule, Decision decision, Duration took) {
      String source = decision.source().word();
      String denied = decision.banned() ? "banned" : "denied";
      String outcome = decision.allowed() ? "allowed" : denied;
      checks.withTags("rule", rule, "outcome", outcome, "source", source).increment();
      latency.withTags("source", source).record(took);
      if (decision.degraded()) {
        degraded
            .withTags("rule", rule, "on.error", onError(decision), "reason", reason(decision))
            .increment();
      }
      List<Decision> rows = decision.rows().isEmpty() ? List.of(decision) : decision.rows();
      for (Decision row : rows) {
        if (row.source() == Source.SERVER && row.limit() > 0) {
          double left = (double) row.remaining() / row.limit();
          ratio.record(labelOf(row.rule().name()), left);
        }
      }
    }

    private static String onError(Decision decision) {
      if (decision.source() == Source.LOCAL) {
        return "local";
      }
      return decision.allowed() ? "allow" : "deny";
    }

    private static String reason(Decision decision) {
      return decision.reason() == null ? "" : decision.reason().word();
    }

    /** Returns the name of the rule, or that of the others if enough rules have been seen. */
    private synchronized String labelOf(String rule) {
      if (rules.contains(rule)) {
        return rule;
      }
      return rules.size() < RULES_MAX && rules.add(rule) ? rule : OTHER;
    }
  }
}
