package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Reads the replies of the server. A reply that is not a decision is a rejection. */
final class Replies {
  /** Matches the error of a key that remembers too many ids. RL.ALL adds the rule's number. */
  private static final Pattern TOO_MANY =
      Pattern.compile("^ERR (rule \\d+: )?too many reservations");

  private Replies() {}

  private static CommandRejectedException odd() {
    return CommandRejectedException.notADecision();
  }

  private static List<?> list(@Nullable Object reply) {
    if (reply instanceof List<?> list) {
      return list;
    }
    throw odd();
  }

  private static long[] integers(List<?> list, int count) {
    if (list.size() < count) {
      throw odd();
    }
    long[] all = new long[count];
    for (int at = 0; at < count; at++) {
      all[at] = integer(list.get(at));
    }
    return all;
  }

  static long integer(@Nullable Object reply) {
    if (reply instanceof Long number) {
      return number;
    }
    throw odd();
  }

  /** Reads a decision: five integers, or seven under a policy. */
  static Decision decision(@Nullable Object reply, Keyed keyed) {
    List<?> list = list(reply);
    Definition rule = keyed.definition();
    // Without the module a policy is its default.
    boolean isPolicy = rule.kind == Kind.POLICY && (list.size() > 5 || rule.fallback == null);
    int count = isPolicy ? 7 : 5;
    if (list.size() != count) {
      throw odd();
    }
    long[] n = integers(list, count);
    long most = keyed.isPartial() ? keyed.cost() : 1;
    if (n[0] < 0 || n[0] > most || n[3] < -1 || n[4] < -1) {
      throw odd();
    }
    long granted = n[0] > 0 && !keyed.isPartial() ? keyed.cost() : n[0];
    Decision d =
        Draft.decision(
            keyed.rule(), n[0] > 0, n[1], n[2], granted, n[3], n[4], Source.SERVER, null);
    if (d.never()) {
      d = Draft.of(d).banned(isBan(keyed, d.limit())).done();
    }
    return isPolicy ? Draft.of(d).would(n[5] > 0, Draft.millis(n[6])).done() : d;
  }

  /** Returns true for a call that is never allowed although it would be within the limit. */
  private static boolean isBan(Keyed keyed, long limit) {
    long cost = keyed.isPartial() ? 1 : keyed.cost();
    return limit == 0 || cost + keyed.unitsLeft(limit) <= limit;
  }

  /**
   * Reads the reply of a charge, a refund or the end of a reservation: five integers, also under a
   * policy.
   */
  static Decision settled(@Nullable Object reply, Rule rule) {
    List<?> list = list(reply);
    if (list.size() != 5) {
      throw odd();
    }
    long[] n = integers(list, 5);
    if (n[0] < 0 || n[3] < -1 || n[4] < -1) {
      throw odd();
    }
    return Draft.decision(
        rule, n[0] > 0, n[1], n[2], Math.min(1, n[0]), n[3], n[4], Source.SERVER, null);
  }

  /**
   * Reads a reply of {@code RL.ALL}: five integers, the number of the rule that decided, and a row
   * for each rule.
   */
  static Decision several(@Nullable Object reply, List<Keyed> all) {
    List<?> list = list(reply);
    if (list.size() != 6 + all.size()) {
      throw odd();
    }
    List<Decision> rows = new ArrayList<>(all.size());
    for (int at = 0; at < all.size(); at++) {
      rows.add(decision(list.get(6 + at), all.get(at)));
    }
    long number = integer(list.get(5));
    if (number < 1 || number > all.size()) {
      throw odd();
    }
    int deciding = (int) number - 1;
    Decision whole = settled(list.subList(0, 5), all.get(deciding).rule());
    boolean wouldAllow = true;
    Duration wouldRetryAfter = whole.wouldRetryAfter();
    for (Decision row : rows) {
      if (!row.wouldAllow()) {
        wouldAllow = false;
        if (row.wouldRetryAfter().compareTo(wouldRetryAfter) > 0) {
          wouldRetryAfter = row.wouldRetryAfter();
        }
      }
    }
    long granted = rows.get(deciding).granted();
    return Draft.of(whole)
        .banned(rows.get(deciding).banned())
        .permit(granted, whole.remaining(), whole.resetAfter(), Source.SERVER)
        .would(wouldAllow, wouldRetryAfter)
        .rows(rows, deciding)
        .done();
  }

  /**
   * Returns the denial of a call whose key has no room for another reservation, or null for another
   * error. The ids are forgotten in time, so it is no error of the program.
   */
  static @Nullable Decision tooMany(Throwable error, List<Keyed> all) {
    boolean isTooMany =
        error instanceof CommandRejectedException
            && TOO_MANY.matcher(String.valueOf(error.getMessage())).find();
    int deciding = -1;
    List<Decision> rows = new ArrayList<>(all.size());
    for (int at = 0; isTooMany && at < all.size(); at++) {
      Keyed keyed = all.get(at);
      Duration ttl = keyed.ttl();
      boolean denies = deciding < 0 && ttl != null;
      long after = denies && ttl != null ? millisUp(ttl) : 0;
      deciding = denies ? at : deciding;
      rows.add(
          Draft.decision(
              keyed.rule(),
              !denies,
              keyed.rule().limit(),
              0,
              denies ? 0 : keyed.cost(),
              after,
              after,
              Source.SERVER,
              null));
    }
    return deciding < 0 ? null : Draft.of(rows.get(deciding)).rows(rows, deciding).done();
  }

  private static long millisUp(Duration d) {
    return d.plusNanos(999_999).toMillis();
  }
}
