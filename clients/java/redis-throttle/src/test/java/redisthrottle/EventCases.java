package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;

/** Runs the events of cases.json, which are timelines of one instant. */
public final class EventCases {
  private EventCases() {}

  /**
   * Returns a test of each case.
   *
   * @param observe observes a limiter, and returns the check of what the case expects
   */
  public static Stream<DynamicTest> tests(Function<Limiter, Consumer<JsonNode>> observe) {
    List<DynamicTest> tests = new ArrayList<>();
    for (JsonNode one : SharedCases.ALL.get("events")) {
      tests.add(DynamicTest.dynamicTest(one.get("name").asText(), () -> run(one, observe)));
    }
    return tests.stream();
  }

  private static void run(JsonNode one, Function<Limiter, Consumer<JsonNode>> observe) {
    TimelineRunner runner = new TimelineRunner(one);
    Consumer<JsonNode> check = observe.apply(runner.limiter);
    runner.run();
    check.accept(one.get("expect"));
  }

  /** Compares the events of a limiter, and its counters. */
  static Consumer<JsonNode> events(Limiter limiter) {
    List<Map<String, Object>> found = new ArrayList<>();
    limiter.onDecision(event -> found.add(fields(event)));
    return wanted -> {
      JsonNode actual = SharedCases.JSON.valueToTree(found);
      // A number is equal whatever its type is.
      boolean isEqual =
          wanted.get("events").equals((a, b) -> a.asText().compareTo(b.asText()), actual);
      assertTrue(isEqual, () -> "events " + actual + " not " + wanted.get("events"));
      TimelineRunner.compareCounters(limiter.counters(), wanted.path("counters"));
    };
  }

  /** Returns the fields of an event as cases.json writes them. */
  private static Map<String, Object> fields(Event event) {
    assertEquals(16, event.keyHash().length());
    assertEquals(Duration.ZERO, event.latency());
    Map<String, Object> fields = new HashMap<>();
    fields.put("kind", event.kind().word());
    fields.put("rule", event.rule().name());
    Decision d = event.decision();
    if (d != null) {
      assertEquals(d.degraded(), event.degraded());
      for (String name :
          List.of("allowed", "source", "limit", "remaining", "retry_after_ms", "degraded")) {
        fields.put(name, SharedCases.field(d, name));
      }
      if (d.degraded()) {
        fields.put("reason", SharedCases.field(d, "reason"));
      }
      if (!d.rows().isEmpty()) {
        fields.put("rules", d.rows().stream().map(row -> row.rule().name()).toList());
      }
    }
    if (event.error() instanceof CommandRejectedException rejected) {
      fields.put("error", rejected.kind());
    } else if (event.error() instanceof UnavailableException unavailable) {
      fields.put("error", "unavailable");
      fields.put("reason", unavailable.reason().word());
    }
    return fields;
  }
}
