package redisthrottle.spring;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import redisthrottle.CalendarUnit;
import redisthrottle.Count;
import redisthrottle.Kind;
import redisthrottle.OnError;

/**
 * The properties of a rule: the algorithm, the arguments of the method of {@link
 * redisthrottle.Rule} that makes it, and its options.
 *
 * @param algorithm Algorithm of the rule.
 * @param burst Units that gcra allows at once.
 * @param capacity Size of a token-bucket or a leaky-bucket.
 * @param rate Units per period of gcra, a token-bucket and a leaky-bucket, or text with the period
 *     such as 10/minute.
 * @param period Period of the rate.
 * @param limit Units per window of fixed, sliding and sliding-log, or text with the window such as
 *     10/minute; units per unit of a quota, or the holders of a lease.
 * @param window Length of the window.
 * @param aligned Whether the windows of fixed begin at multiples of their length since 1970.
 * @param slots Parts of the window of a sliding-log.
 * @param attempts Attempts of backoff without a delay.
 * @param base First delay of backoff.
 * @param longest Longest delay of backoff.
 * @param forget Time after which backoff starts again.
 * @param unit Calendar period of a quota.
 * @param zone Time zone of a quota, such as Europe/Berlin.
 * @param start Start of the periods of a quota.
 * @param ttl Time after which a permit of a lease expires unless it is renewed.
 * @param variants Names of policies that are looked up before the rule's.
 * @param fallback Rule that applies if the server has no such policy.
 * @param onError Decision on calls without a final reply.
 * @param localShare Share of the limit that this process allows under on-error local.
 * @param prefetch Permits that one call fetches.
 * @param counts Responses that count: others give their units back.
 */
public record RuleProperties(
    @Nullable Kind algorithm,
    @Nullable Long burst,
    @Nullable Long capacity,
    @Nullable String rate,
    @Nullable Duration period,
    @Nullable String limit,
    @Nullable Duration window,
    @Nullable Boolean aligned,
    @Nullable Integer slots,
    @Nullable Long attempts,
    @Nullable Duration base,
    @Nullable Duration longest,
    @Nullable Duration forget,
    @Nullable CalendarUnit unit,
    @Nullable String zone,
    @Nullable String start,
    @Nullable Duration ttl,
    @Nullable List<String> variants,
    @Nullable String fallback,
    @Nullable OnError onError,
    @Nullable Double localShare,
    @Nullable Integer prefetch,
    @Nullable Counts counts) {

  /** The responses that count. */
  public enum Counts {
    /** All responses. */
    ALL(Count.ALL),
    /** Responses with a status of 400 or more. */
    FAILURES(Count.FAILURES);

    final Count count;

    Counts(Count count) {
      this.count = count;
    }
  }

  /** Returns the arguments that are set, in the order of the methods of the rules. */
  Map<String, Object> arguments() {
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("burst", burst);
    all.put("capacity", capacity);
    all.put("rate", rate);
    all.put("period", period);
    all.put("limit", limit);
    all.put("window", window);
    all.put("aligned", aligned);
    all.put("slots", slots);
    all.put("attempts", attempts);
    all.put("base", base);
    all.put("longest", longest);
    all.put("forget", forget);
    all.put("unit", unit);
    all.put("zone", zone);
    all.put("start", start);
    all.put("ttl", ttl);
    all.put("variants", variants);
    all.put("fallback", fallback);
    all.values().removeIf(value -> value == null);
    return all;
  }
}
