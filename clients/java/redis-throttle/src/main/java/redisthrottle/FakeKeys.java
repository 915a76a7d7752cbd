package redisthrottle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Runs commands on the keys of the fake server. Times are nanoseconds. */
final class FakeKeys {
  /** The number of ids that a key remembers at a time. */
  private static final int IDS_MAX = 1024;

  /**
   * The shortest time for which an id is remembered after its commit, unless the ttl is shorter.
   */
  private static final long SETTLED_MIN = 60_000_000_000L;

  /** A state of an algorithm, the ends of leases by their ids, or a ban. */
  private record Kept(
      String word,
      @Nullable Algorithm algorithm,
      @Nullable Object state,
      Map<String, Long> holders,
      long bannedUntil) {
    boolean isState() {
      return algorithm != null;
    }
  }

  /** The decision of one rule. */
  private record Row(
      FakeRule rule, String key, Algorithm.Verdict verdict, long granted, Runnable commit) {
    Row with(Algorithm.Verdict other) {
      return new Row(rule, key, other, granted, commit);
    }

    /** Returns five integers, or seven under a policy. */
    List<Object> reply() {
      long taken = verdict.allowed() ? rule.isPartial ? granted : 1 : 0;
      List<Object> reply = integers(taken, verdict);
      if (rule.isPolicy) {
        reply.add(taken);
        reply.add(reply.get(3));
      }
      return reply;
    }
  }

  private final Clock clock;
  private final Map<String, Kept> keys = new HashMap<>();

  FakeKeys(Clock clock) {
    this.clock = clock;
  }

  static ServerErrorException wrongType() {
    String text = "WRONGTYPE the key does not hold a state of this algorithm";
    return new ServerErrorException(text, null);
  }

  /** Runs a command, and returns its reply. */
  Object reply(List<String> words) {
    if (words.size() < 2) {
      throw FakeRule.error("wrong number of arguments");
    }
    String key = words.get(1);
    List<String> rest = words.subList(2, words.size());
    return switch (words.get(0)) {
      case "DEL" -> {
        long deleted = kept(key) == null ? 0 : 1;
        keys.remove(key);
        yield deleted;
      }
      case "RL.ALL" -> several(words, true);
      case "RL.PEEKALL" -> several(words, false);
      case "RL.PEEK" -> decide(key, rest).reply();
      case "RL.CHARGE" -> settle(key, rest, 1);
      case "RL.REFUND" -> settle(key, rest, -1);
      case "RL.COMMIT" -> end(key, rest, true);
      case "RL.CANCEL" -> end(key, rest, false);
      case "RL.RELEASE" -> hold(key, rest, true);
      case "RL.RENEW" -> hold(key, rest, false);
      case "RL.BLOCK" -> {
        long until = now() + FakeRule.nanos(word(rest, 0));
        keys.put(key, new Kept("", null, null, Map.of(), until));
        yield "OK";
      }
      default -> one(words, key, rest);
    };
  }

  private static String word(List<String> words, int at) {
    if (at >= words.size()) {
      throw FakeRule.error("wrong number of arguments");
    }
    return words.get(at);
  }

  private Object one(List<String> words, String key, List<String> rest) {
    if (!words.get(0).startsWith("RL.")) {
      throw FakeRule.error("unknown command '" + words.get(0) + "'");
    }
    List<String> rule = new ArrayList<>(rest);
    rule.add(0, words.get(0).substring(3));
    Row row = decide(key, rule);
    if (row.verdict.allowed()) {
      row.commit.run();
    }
    return row.reply();
  }

  private long now() {
    return clock.wallNanos();
  }

  /** Returns what a key holds; null if there is nothing or it has expired. */
  private @Nullable Kept kept(String key) {
    Kept found = keys.get(key);
    if (found == null) {
      return null;
    }
    long now = now();
    found.holders.values().removeIf(end -> end <= now);
    boolean isThere = found.bannedUntil > now || !found.holders.isEmpty();
    if (found.algorithm != null) {
      isThere = found.algorithm.add(found.state, now, 0) != null;
    }
    if (!isThere) {
      keys.remove(key);
      return null;
    }
    return found;
  }

  /** Returns the time for which a key is banned; 0 if it is not. */
  private long bannedFor(String key) {
    Kept found = kept(key);
    return found == null ? 0 : Math.max(0, found.bannedUntil - now());
  }

  /** Returns the state of a key under a rule. */
  private @Nullable Object state(String key, FakeRule rule) {
    Kept found = kept(key);
    if (found == null || found.bannedUntil > 0) {
      return null;
    }
    if (found.word.equals(rule.word)) {
      return found.state;
    }
    // A policy may have had another rule before.
    if (!rule.isPolicy || !found.isState()) {
      throw wrongType();
    }
    return null;
  }

  private void store(String key, FakeRule rule, @Nullable Object state) {
    if (state == null) {
      keys.remove(key);
    } else {
      keys.put(key, new Kept(rule.word, rule.decider(), state, new HashMap<>(), 0));
    }
  }

  /** Decides the call of a rule without taking anything. */
  private Row decide(String key, List<String> words) {
    FakeRule rule = FakeRule.of(words);
    Object state = state(key, rule);
    long banned = bannedFor(key);
    if (banned > 0) {
      long units = rule.isPartial ? 1 : rule.cost;
      return new Row(rule, key, banned(rule, banned, units + rule.left()), 0, () -> {});
    }
    if (rule.permits > 0) {
      return lease(key, rule);
    }
    return rule.ttl > 0 ? reserve(key, rule, state) : plain(key, rule, state);
  }

  private static Algorithm.Verdict banned(FakeRule rule, long left, long units) {
    long ms = Algorithm.millis(left);
    long retryAfter = units > rule.limit() ? Algorithm.NEVER : ms;
    return new Algorithm.Verdict(false, rule.limit(), 0, retryAfter, ms, null);
  }

  private Row plain(String key, FakeRule rule, @Nullable Object state) {
    Algorithm algorithm = rule.decider();
    long now = now();
    long left = rule.left();
    long cost = rule.cost;
    if (rule.isPartial) {
      long free = algorithm.decide(state, now, 0).remaining() - left;
      cost = Math.min(cost, Math.max(1, free));
    }
    Algorithm.Verdict verdict = algorithm.decide(state, now, cost + left);
    if (verdict.allowed() && left > 0) {
      verdict = algorithm.decide(state, now, cost);
    }
    Object after = verdict.state();
    Runnable commit = () -> store(key, rule, after);
    return new Row(rule, key, verdict, cost, after == null ? () -> {} : commit);
  }

  private Map<String, Long> holders(String key) {
    Kept found = kept(key);
    return found == null ? new HashMap<>() : found.holders;
  }

  /** Decides a permit. */
  private Row lease(String key, FakeRule rule) {
    Map<String, Long> holders = holders(key);
    long now = now();
    long left = rule.left();
    boolean isHolder = holders.containsKey(rule.id);
    long count = holders.size();
    boolean allowed = isHolder || count + left < rule.permits;
    long[] ends = holders.values().stream().mapToLong(end -> end).sorted().toArray();
    long reset = ends.length == 0 ? 0 : ends[ends.length - 1] - now;
    long retryAfter = 0;
    if (allowed) {
      reset = Math.max(reset, rule.ttl);
      count += isHolder ? 0 : 1;
    } else if (left >= rule.permits) {
      retryAfter = Algorithm.NEVER;
    } else {
      retryAfter = Algorithm.millis(ends[(int) (count + left - rule.permits)] - now);
    }
    long free = Math.max(0, rule.permits - count);
    long resetAfter = Algorithm.millis(reset);
    Algorithm.Verdict verdict =
        new Algorithm.Verdict(allowed, rule.permits, free, retryAfter, resetAfter, null);
    Runnable commit =
        () -> {
          Map<String, Long> all = holders(key);
          all.put(rule.id, now + rule.ttl);
          keys.put(key, new Kept(rule.word, null, null, all, 0));
        };
    return new Row(rule, key, verdict, 1, commit);
  }

  /** Renews or releases a lease. */
  private long hold(String key, List<String> words, boolean isEnd) {
    String id = word(words, 0);
    Kept found = kept(key);
    if (found != null && found.isState()) {
      throw wrongType();
    }
    if (found == null || !found.holders.containsKey(id)) {
      return 0;
    }
    if (isEnd) {
      found.holders.remove(id);
    } else {
      found.holders.put(id, now() + FakeRule.nanos(word(words, 1)));
    }
    return 1;
  }

  /** Decides a reservation, which replaces an open one of the same id. */
  private Row reserve(String key, FakeRule rule, @Nullable Object state) {
    FakeWindow.Usage usage = rule.window().at(state, now());
    FakeWindow.Held own = usage.held(rule.id);
    FakeWindow.Usage others = usage.without(own);
    if (own != null && own.isSettled()) {
      throw FakeRule.error("invalid id: already committed, use a new id for each job");
    }
    if (own == null && others.held().size() >= IDS_MAX) {
      throw FakeRule.error("too many reservations: a key remembers at most 1024 ids at a time");
    }
    long units = rule.cost + rule.left();
    if (units > 0 && others.taken() + units > usage.limit()) {
      Algorithm.Verdict denial = usage.verdict(false, others.roomAfter(units), null);
      return new Row(rule, key, denial, 0, () -> {});
    }
    long ends = usage.now() + rule.ttl;
    FakeWindow.Usage after =
        others.with(new FakeWindow.Held(rule.id, rule.cost, false, rule.ttl, ends));
    Algorithm.Verdict verdict = after.verdict(true, 0, null);
    return new Row(rule, key, verdict, rule.cost, () -> store(key, rule, after));
  }

  /** Commits or cancels a reservation. */
  private List<Object> end(String key, List<String> words, boolean isCommit) {
    String id = word(words, 0);
    FakeRule rule = FakeRule.of(words.subList(1, words.size()));
    FakeWindow window = rule.window();
    Object state = state(key, rule);
    long banned = bannedFor(key);
    if (banned > 0) {
      return integers(0, banned(rule, banned, 0));
    }
    FakeWindow.Usage usage = window.at(state, now());
    FakeWindow.Held own = usage.held(id);
    boolean isOpen = own != null && !own.isSettled();
    if (own != null && isOpen) {
      usage = usage.without(own);
      if (isCommit) {
        long ends = Math.max(own.ends(), now() + Math.min(own.ttl(), SETTLED_MIN));
        long units = rule.hasCost ? rule.cost : own.units();
        usage =
            usage
                .with(usage.used() + units, usage.held())
                .with(new FakeWindow.Held(id, 0, true, own.ttl(), ends));
      }
    }
    store(key, rule, usage.stored());
    boolean isKnown = isCommit ? own != null : isOpen;
    return integers(isKnown ? 1 : 0, usage.verdict(false, usage.roomAfter(0), null));
  }

  /** Charges or refunds units. */
  private List<Object> settle(String key, List<String> words, int sign) {
    FakeRule rule = FakeRule.of(words);
    Algorithm algorithm = rule.decider();
    Object state = state(key, rule);
    long banned = bannedFor(key);
    if (banned > 0) {
      return integers(0, banned(rule, banned, 0));
    }
    long now = now();
    boolean wasAllowed = algorithm.over(state, now) == 0;
    Object after = algorithm.add(state, now, sign * rule.cost);
    store(key, rule, after);
    long over = algorithm.over(after, now);
    Algorithm.Verdict v = algorithm.decide(after, now, 0);
    // After each attempt of a backoff there is a delay.
    boolean isAllowed = rule.word.equals("BACKOFF") && sign > 0 ? wasAllowed : over == 0;
    Algorithm.Verdict shown =
        new Algorithm.Verdict(isAllowed, v.limit(), v.remaining(), over, v.resetAfter(), null);
    return integers(isAllowed ? 1 : 0, shown);
  }

  private static List<Object> integers(long first, Algorithm.Verdict v) {
    return new ArrayList<>(
        List.of(first, v.limit(), v.remaining(), v.retryAfter(), v.resetAfter()));
  }

  /** Runs a command of several rules. */
  private List<Object> several(List<String> words, boolean takes) {
    List<Row> rows = new ArrayList<>();
    for (int at = 1; at + 1 < words.size(); at += 2) {
      rows.add(numbered(words.get(at), words.get(at + 1), at / 2 + 1));
    }
    if (rows.isEmpty()) {
      throw FakeRule.error("wrong number of arguments");
    }
    boolean denied = rows.stream().anyMatch(row -> !row.verdict.allowed());
    if (denied) {
      rows.replaceAll(row -> row.verdict.allowed() ? row.with(standing(row)) : row);
    } else if (takes) {
      rows.forEach(row -> row.commit.run());
    }
    int deciding = deciding(rows, denied);
    Algorithm.Verdict of = rows.get(deciding).verdict;
    // The longest wait of the leaky buckets.
    long longest = rows.stream().mapToLong(row -> row.verdict.retryAfter()).max().orElse(0);
    List<Object> reply = integers(denied ? 0 : 1, of);
    reply.set(3, denied ? of.retryAfter() : longest);
    reply.add(deciding + 1L);
    rows.forEach(row -> reply.add(row.reply()));
    return reply;
  }

  private Row numbered(String key, String words, int number) {
    try {
      return decide(key, Arrays.asList(words.trim().split("\\s+")));
    } catch (ServerErrorException e) {
      String[] text = String.valueOf(e.getMessage()).split(" ", 2);
      String numbered = text[0] + " rule " + number + ": " + text[1];
      throw new ServerErrorException(numbered, null);
    }
  }

  /** Returns the state of a rule that allows a call which another denies. */
  private Algorithm.Verdict standing(Row row) {
    long now = now();
    if (row.rule.permits == 0) {
      Object state = state(row.key, row.rule);
      Algorithm.Verdict v = row.rule.decider().decide(state, now, 0);
      return new Algorithm.Verdict(true, v.limit(), v.remaining(), 0, v.resetAfter(), null);
    }
    Map<String, Long> holders = holders(row.key);
    long last = holders.values().stream().mapToLong(end -> end).max().orElse(now);
    long left = Math.max(0, row.rule.permits - holders.size());
    return new Algorithm.Verdict(
        true, row.rule.permits, left, 0, Algorithm.millis(last - now), null);
  }

  /**
   * Returns the index of the row that decides: of a denial the one with the longest wait, otherwise
   * the one that allows the fewest further calls.
   */
  private static int deciding(List<Row> rows, boolean denied) {
    int best = 0;
    long least = Long.MAX_VALUE;
    long leastLeft = Long.MAX_VALUE;
    for (int at = 0; at < rows.size(); at++) {
      Row row = rows.get(at);
      if (denied && row.verdict.allowed()) {
        continue;
      }
      long left = denied ? 0 : row.verdict.remaining();
      long score = score(row, denied);
      if (score < least || score == least && left < leastLeft) {
        best = at;
        least = score;
        leastLeft = left;
      }
    }
    return best;
  }

  private static long score(Row row, boolean denied) {
    if (denied) {
      long retryAfter = row.verdict.retryAfter();
      return retryAfter == Algorithm.NEVER ? Long.MIN_VALUE : -retryAfter;
    }
    long usable = Math.max(0, row.verdict.remaining() - row.rule.left());
    return row.rule.cost > 0 ? usable / row.rule.cost : Long.MAX_VALUE;
  }
}
