package redisthrottle.spring;

import io.micrometer.core.instrument.DistributionSummary;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.Meter.MeterProvider;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.composite.CompositeMeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import io.prometheus.metrics.core.metrics.Histogram;
import io.prometheus.metrics.model.snapshots.Labels;
import java.util.ArrayList;
import java.util.List;
import java.util.function.ObjDoubleConsumer;
import org.springframework.util.ClassUtils;

/**
 * Records the units left of the limit. Micrometer rounds the values of a summary up to integers
 * before it finds their bucket, so Prometheus gets a histogram of its own.
 */
final class RemainingRatio {
  private static final String TEXT = "Units left of the limit after a server's decision.";
  private static final boolean HAS_PROMETHEUS =
      ClassUtils.isPresent(
          "io.micrometer.prometheusmetrics.PrometheusMeterRegistry",
          RemainingRatio.class.getClassLoader());

  private final List<ObjDoubleConsumer<String>> all = new ArrayList<>();

  /**
   * Makes the metric in a registry.
   *
   * @param sibling another meter there, without tags of its own
   */
  RemainingRatio(MeterRegistry registry, Meter sibling) {
    if (registry instanceof CompositeMeterRegistry composite) {
      composite.getRegistries().forEach(one -> add(one, sibling));
    } else {
      add(registry, sibling);
    }
  }

  void record(String rule, double left) {
    all.forEach(one -> one.accept(rule, left));
  }

  private void add(MeterRegistry registry, Meter sibling) {
    if (HAS_PROMETHEUS && Prometheus.isOf(registry)) {
      all.add(Prometheus.histogram(registry, sibling));
    } else {
      MeterProvider<DistributionSummary> summary =
          DistributionSummary.builder("redis.throttle.remaining.ratio")
              .description(TEXT)
              .withRegistry(registry);
      all.add((rule, left) -> summary.withTag("rule", rule).record(left));
    }
  }

  /** Refers to the classes of Prometheus, which may be missing. */
  private static final class Prometheus {
    static boolean isOf(MeterRegistry registry) {
      return registry instanceof PrometheusMeterRegistry;
    }

    static ObjDoubleConsumer<String> histogram(MeterRegistry registry, Meter sibling) {
      Labels common = Labels.EMPTY;
      // Those that filters give to all meters of the application.
      for (Tag tag : sibling.getId().getConventionTags(registry.config().namingConvention())) {
        common = common.add(tag.getKey(), tag.getValue());
      }
      Histogram histogram =
          Histogram.builder()
              .name("redis_throttle_remaining_ratio")
              .help(TEXT)
              .labelNames("rule")
              .constLabels(common)
              .classicOnly()
              .withoutExemplars()
              .classicUpperBounds(0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)
              .register(((PrometheusMeterRegistry) registry).getPrometheusRegistry());
      return (rule, left) -> histogram.labelValues(rule).observe(left);
    }
  }
}
