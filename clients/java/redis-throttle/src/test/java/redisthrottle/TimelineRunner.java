package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.function.Executable;

/** Runs one timeline. */
final class TimelineRunner implements Executable {
  private static final long LONGEST_NS = 120_000_000_000L;
  private final ManualClock clock = new ManualClock();
  private final Script script = new Script(clock);
  private final Map<String, Rule> rules = new HashMap<>();
  private final TimelineActions actions;
  private final JsonNode timeline;
  final Limiter limiter;

  /** The numbers of commands and dials before this step. */
  private int seen;

  private int dialled;

  TimelineRunner(JsonNode timeline) {
    this.timeline = timeline;
    timeline
        .get("rules")
        .forEach(one -> rules.put(one.get("name").asText(), SharedCases.rule(one)));
    LimiterBuilder builder = new LimiterBuilder(script, clock::view, Runnable::run).jitter(() -> 1);
    timeline
        .path("options")
        .properties()
        .forEach(one -> SharedCases.set(builder, one.getKey(), one.getValue()));
    setNodes(timeline.path("nodes"));
    // The first dial, which building the limiter begins, gets the replies of the first step.
    script.hold();
    this.limiter = builder.build();
    this.actions = new TimelineActions(limiter, script, rules, clock);
  }

  /** Moves the slots of a cluster: the node of each subject, under all rules. */
  private void setNodes(JsonNode given) {
    Map<String, String> nodes = new HashMap<>();
    for (String rule : rules.keySet()) {
      given
          .properties()
          .forEach(
              one -> nodes.put(TimelineActions.keyOf(rule, one.getKey()), one.getValue().asText()));
    }
    script.nodes = nodes;
  }

  void run() {
    try {
      timeline.get("steps").forEach(this::step);
      List<JsonNode> left =
          script.left().stream().filter(item -> !item.asText().equals("refuse")).toList();
      assertEquals(List.of(), left, "replies are left");
    } finally {
      script.isOver = true;
      actions.cancelAll();
      CompletableFuture<Void> closed = limiter.closeAsync().toCompletableFuture();
      runDuring(closed);
      assertEquals(Long.MAX_VALUE, clock.nextAt(), "timers are left");
    }
  }

  @Override
  public void execute() {
    run();
  }

  /** Moves the clock from timer to timer until the result is there. */
  private void runDuring(CompletableFuture<?> result) {
    long end = clock.nanos() + LONGEST_NS;
    while (!result.isDone() && clock.nextAt() <= end) {
      clock.runUntil(clock.nextAt());
    }
    assertTrue(result.isDone(), "an action does not end");
  }

  private static List<JsonNode> repliesOf(JsonNode of) {
    List<JsonNode> all = new ArrayList<>();
    if (of.has("server")) {
      all.add(of.get("server"));
    } else {
      of.path("servers").forEach(all::add);
    }
    return all;
  }

  private void step(JsonNode step) {
    long at = step.path("at").asLong() * 1_000_000;
    assertTrue(clock.nanos() <= at, "the step at " + step.get("at") + " begins late");
    clock.runUntil(Math.max(0, at - 1));
    script.add(repliesOf(step), null);
    List<JsonNode> calls = calls(step);
    for (JsonNode one : calls) {
      if (one != step) {
        script.add(repliesOf(one), TimelineActions.keyOf(one));
      }
    }
    clock.runUntil(at);
    if (step.has("nodes")) {
      setNodes(step.get("nodes"));
    }
    if (step.has("pause")) {
      clock.pause(step.get("pause").asLong() * 1_000_000, script.clock);
    }
    List<TimelineActions.Outcome> outcomes = outcomes(step, calls);
    assertEquals(List.of(), script.unexpected, "commands without a reply at " + step.get("at"));
    int dials = script.dials - dialled;
    dialled = script.dials;
    compareStep(step, outcomes, dials);
  }

  private static List<JsonNode> calls(JsonNode step) {
    if (!step.has("calls")) {
      return List.of(step);
    }
    List<JsonNode> all = new ArrayList<>();
    for (JsonNode one : step.get("calls")) {
      for (int left = one.path("times").asInt(1); left > 0; left--) {
        all.add(one);
      }
    }
    return all;
  }

  /** Acts, and returns the outcomes of the actions that end in this step. */
  private List<TimelineActions.Outcome> outcomes(JsonNode step, List<JsonNode> calls) {
    script.hold();
    List<CompletableFuture<TimelineActions.Outcome>> begun = new ArrayList<>();
    calls.forEach(one -> begun.add(actions.begin(one)));
    script.release();
    List<TimelineActions.Outcome> outcomes = new ArrayList<>();
    for (int at = 0; at < begun.size(); at++) {
      CompletableFuture<TimelineActions.Outcome> one = begun.get(at);
      if (one == null) {
        continue;
      }
      runDuring(one);
      outcomes.add(one.join());
      if (calls.get(at) != step) {
        compare(one.join(), calls.get(at).path("expect").properties().iterator());
      }
    }
    return outcomes;
  }

  private void compareStep(JsonNode step, List<TimelineActions.Outcome> outcomes, int dials) {
    List<String> sent = List.copyOf(script.sent.subList(seen, script.sent.size()));
    seen = script.sent.size();
    Map<String, JsonNode> rest = new TreeMap<>();
    step.path("expect")
        .properties()
        .forEach(
            one -> {
              JsonNode wanted = one.getValue();
              switch (one.getKey()) {
                case "sent" -> compareSent(step, sent, wanted);
                case "dials" -> assertEquals(wanted.asInt(), dials, "dials");
                case "generation" -> assertEquals(wanted.asInt(), script.generation, "generation");
                case "held" -> compareHeld(step, wanted);
                case "counters" -> compareCounters(limiter.counters(), wanted);
                case "outcomes" -> compareKinds(outcomes, wanted);
                default -> rest.put(one.getKey(), wanted);
              }
            });
    if (!rest.isEmpty()) {
      compare(outcomes.get(0), rest.entrySet().iterator());
    }
  }

  private void compareHeld(JsonNode step, JsonNode wanted) {
    wanted
        .properties()
        .forEach(
            one ->
                assertEquals(
                    one.getValue().asBoolean(),
                    actions.isHeld(one.getKey()),
                    "held " + one.getKey() + " at " + step.get("at")));
  }

  static void compareCounters(Counters found, JsonNode wanted) {
    JsonNode counters = SharedCases.JSON.valueToTree(found);
    wanted
        .properties()
        .forEach(
            one ->
                assertEquals(
                    one.getValue().asLong(), counters.get(one.getKey()).asLong(), one.getKey()));
  }

  private static void compareKinds(List<TimelineActions.Outcome> outcomes, JsonNode wanted) {
    Map<String, Long> counted = new TreeMap<>();
    for (TimelineActions.Outcome one : outcomes) {
      Object reason = one.field("reason");
      counted.merge(String.valueOf(reason == null ? one.field("source") : reason), 1L, Long::sum);
    }
    Map<String, Long> expected = new TreeMap<>();
    wanted.properties().forEach(one -> expected.put(one.getKey(), one.getValue().asLong()));
    assertEquals(expected, counted, "outcomes");
  }

  /** Compares the beginnings of commands. */
  private static void compareSent(JsonNode step, List<String> sent, JsonNode wanted) {
    List<String> beginnings = new ArrayList<>();
    wanted.forEach(one -> beginnings.add(one.asText()));
    List<String> actual = new ArrayList<>(sent);
    if (step.has("calls")) {
      beginnings.sort(null);
      actual.sort(null);
    }
    boolean isEqual = actual.size() == beginnings.size();
    for (int at = 0; isEqual && at < actual.size(); at++) {
      isEqual = actual.get(at).startsWith(beginnings.get(at));
    }
    assertTrue(isEqual, () -> "sent at " + step.get("at") + ": " + actual + " not " + beginnings);
  }

  private static void compare(
      TimelineActions.Outcome outcome, Iterator<Map.Entry<String, JsonNode>> expected) {
    expected.forEachRemaining(
        one -> {
          JsonNode wanted = one.getValue();
          if (one.getKey().equals("rows")) {
            List<Decision> rows = outcome.decision().rows();
            assertEquals(wanted.size(), rows.size(), "the number of rows");
            for (int at = 0; at < rows.size(); at++) {
              JsonNode actual = CasesTest.fieldsOf(rows.get(at), wanted.get(at));
              assertEquals(wanted.get(at).toString(), actual.toString(), "row " + at);
            }
            return;
          }
          String what = one.getKey() + " of " + outcome;
          assertEquals(SharedCases.plain(wanted), outcome.field(one.getKey()), what);
        });
  }
}
