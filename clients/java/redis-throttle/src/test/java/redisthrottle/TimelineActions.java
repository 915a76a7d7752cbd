package redisthrottle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/** The actions of a timeline. */
final class TimelineActions {
  private static final List<String> NAMES =
      List.of(
          "check",
          "peek",
          "refund",
          "charge",
          "forget",
          "block",
          "wait",
          "check_all",
          "peek_all",
          "check_each",
          "admit",
          "settle",
          "finish",
          "lease",
          "release",
          "ready",
          "close",
          "join",
          "cancel",
          "disconnect");

  /** The end of an action. */
  record Outcome(Object result, Throwable error, long beganMs, long endedMs) {
    Decision decision() {
      if (error instanceof DeniedException denied) {
        return denied.decision();
      }
      if (result instanceof Lease lease) {
        return lease.decision();
      }
      if (result instanceof Admission admission) {
        return admission.decision();
      }
      return (Decision) result;
    }

    /** Returns a field as cases.json writes it. */
    Object field(String name) {
      switch (name) {
        case "after_ms" -> {
          return endedMs - beganMs;
        }
        case "raises" -> {
          String type = error == null ? null : error.getClass().getSimpleName();
          boolean isClosed = error instanceof IllegalStateException;
          return isClosed ? "Closed" : type == null ? null : type.replaceAll("Exception$", "");
        }
        case "returns" -> {
          return result instanceof Backend backend ? backend.word() : result;
        }
        default -> {}
      }
      if (name.equals("reason") && error instanceof UnavailableException unavailable) {
        return unavailable.reason().word();
      }
      if (error != null && !(error instanceof DeniedException)) {
        throw new AssertionError("an unexpected error", error);
      }
      return SharedCases.field(decision(), name);
    }
  }

  private record Started(CompletableFuture<Outcome> outcome, CompletableFuture<?> work) {}

  private final Limiter limiter;
  private final Script script;
  private final Map<String, Rule> rules;
  private final ManualClock clock;
  private final Map<String, Object> guards = new HashMap<>();
  private final Map<String, Started> started = new HashMap<>();

  TimelineActions(Limiter limiter, Script script, Map<String, Rule> rules, ManualClock clock) {
    this.limiter = limiter;
    this.script = script;
    this.rules = rules;
    this.clock = clock;
  }

  private long nowMs() {
    return clock.nanos() / 1_000_000;
  }

  boolean isHeld(String id) {
    Object guard = guards.get(id);
    return guard instanceof Lease lease ? lease.isHeld() : ((Admission) guard).isHeld();
  }

  void cancelAll() {
    started.values().forEach(one -> one.work.cancel(false));
  }

  private static String actionOf(JsonNode one) {
    return NAMES.stream().filter(one::has).findFirst().orElse("");
  }

  /** Returns the key or the id of a call: its own replies are for the commands with it. */
  static String keyOf(JsonNode one) {
    String name = actionOf(one);
    if (name.equals("admit")) {
      return one.get("id").asText();
    }
    JsonNode given = one.path(name);
    if (given.isTextual()) {
      return given.asText();
    }
    if (!given.isArray() || !given.get(0).isTextual()) {
      return null;
    }
    if (name.equals("lease")) {
      return given.get(2).asText();
    }
    return keyOf(given.get(0).asText(), given.get(1).asText());
  }

  static String keyOf(String rule, String subject) {
    return "rl:" + rule + ":" + subject.replace(":", "%3A");
  }

  /** Begins an action. Returns null unless the action ends in this step. */
  CompletableFuture<Outcome> begin(JsonNode one) {
    String name = actionOf(one);
    switch (name) {
      case "" -> {
        return null;
      }
      case "disconnect" -> {
        script.disconnect();
        return null;
      }
      case "cancel" -> {
        started.get(one.get(name).asText()).work.cancel(false);
        return null;
      }
      case "join" -> {
        return started.get(one.get(name).asText()).outcome;
      }
      default -> {}
    }
    long began = nowMs();
    CompletableFuture<Object> work = begun(name, one);
    CompletableFuture<Outcome> outcome =
        work.handle(
            (result, error) -> {
              keep(name, one, result);
              Throwable cause = error == null ? null : Errors.cause(error);
              return new Outcome(result, cause, began, nowMs());
            });
    if (!one.has("start")) {
      return outcome;
    }
    started.put(one.get("start").asText(), new Started(outcome, work));
    return null;
  }

  private void keep(String name, JsonNode one, Object result) {
    if (result instanceof Lease) {
      guards.put(one.get(name).get(2).asText(), result);
    } else if (result instanceof Admission) {
      guards.put(one.get("id").asText(), result);
    }
  }

  private CompletableFuture<Object> begun(String name, JsonNode one) {
    try {
      // The same future: its cancellation gives the call up.
      @SuppressWarnings("unchecked")
      CompletableFuture<Object> work =
          (CompletableFuture<Object>) act(name, one).toCompletableFuture();
      return work;
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private Item item(JsonNode given) {
    ObjectNode fields = SharedCases.JSON.createObjectNode();
    fields.set("subject", given.get(1));
    JsonNode third = given.path(2);
    if (third.isNumber()) {
      fields.set("cost", third);
    } else if (third.isObject()) {
      fields.setAll((ObjectNode) third);
    }
    return SharedCases.item(rules.get(given.get(0).asText()), fields);
  }

  private Item plain(JsonNode given) {
    return rules.get(given.get(0).asText()).of(given.get(1).asText());
  }

  private List<Item> items(JsonNode given) {
    List<Item> all = new ArrayList<>();
    given.forEach(one -> all.add(item(one)));
    return all;
  }

  private CompletionStage<?> act(String name, JsonNode one) {
    JsonNode given = one.get(name);
    CallOptions none = CallOptions.NONE;
    return switch (name) {
      case "ready" -> limiter.readyAsync();
      case "close" -> limiter.closeAsync();
      case "check_all" -> limiter.checkAllAsync(items(given), none);
      case "peek_all" -> limiter.peekAllAsync(items(given), none);
      case "check_each" -> limiter.checkEachAsync(items(given), none);
      case "admit" -> limiter.admitAsync(items(given), none.withId(one.get("id").asText()));
      case "release" -> ((Lease) guards.get(given.asText())).releaseAsync();
      case "finish" -> ((Admission) guards.get(given.asText())).finishAsync();
      case "settle" -> {
        Admission admission = (Admission) guards.get(given.get(0).asText());
        admission.settle(rules.get(given.get(1).asText()), given.get(2).asLong());
        yield CompletableFuture.completedFuture(null);
      }
      case "lease" -> limiter.leaseAsync(plain(given), none.withId(given.get(2).asText()));
      case "wait" ->
          limiter.awaitAsync(plain(given), Duration.ofMillis(given.get(2).asLong()), none);
      case "block" -> limiter.blockAsync(plain(given), SharedCases.duration(given.get(2)), none);
      case "check" -> limiter.checkAsync(item(given));
      case "peek" -> limiter.peekAsync(item(given), none);
      case "refund" -> limiter.refundAsync(item(given), none);
      case "charge" -> limiter.chargeAsync(item(given), none);
      case "forget" -> limiter.forgetAsync(item(given), none);
      default -> throw new AssertionError("the action " + name);
    };
  }
}
