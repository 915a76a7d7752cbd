package redisthrottle;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A server in this process, for the tests of an application. Its clock, which is also that of the
 * limiters that {@link #limiter} builds, stands still until {@link #advance} moves it.
 *
 * <p>It decides buckets, windows and leases by the algorithms of {@link OnError#LOCAL}, and a
 * policy by its default. A charge takes no more than is left. It has no backoffs, quotas and
 * reservations.
 */
public final class FakeServer implements Connector {
  private static final UnavailableException NO_ERROR =
      UnavailableException.sent(Reason.SERVER, "the fake server decides", null);

  private final ManualClock clock = new ManualClock();
  private final Loop time = new Loop(clock.view());
  private final ReentrantLock lock = new ReentrantLock();
  private final LocalLimiter local = new LocalLimiter(time);

  /** The ends of bans by key, and of leases by key and id. */
  private final Map<String, Long> bans = new HashMap<>();

  private final Map<String, Map<String, Long>> leases = new HashMap<>();
  private final List<List<String>> received = new CopyOnWriteArrayList<>();
  private volatile boolean isAway;
  private volatile boolean isSilent;

  /** Makes a server that answers. */
  public FakeServer() {}

  /** Returns a builder of a limiter over this server and its clock. */
  public LimiterBuilder limiter() {
    return new LimiterBuilder(this, clock::view, Runnable::run).jitter(() -> 1);
  }

  /** Moves the clock, and runs what is due until then. */
  public void advance(Duration time) {
    clock.runUntil(clock.nanos() + Checks.present("time", time).toNanos());
  }

  /** Refuses connections and loses commands, until {@link #answer}. */
  public void goAway() {
    isAway = true;
  }

  /** Sends no replies, until {@link #answer}. Commands that arrive are not executed. */
  public void hang() {
    isSilent = true;
  }

  /** Answers again. */
  public void answer() {
    isAway = false;
    isSilent = false;
  }

  /** Returns the commands that arrived, in order. */
  public List<List<String>> received() {
    return List.copyOf(received);
  }

  @Override
  public CompletionStage<Connection> connect(@Nullable String node, Duration timeout) {
    return isAway
        ? CompletableFuture.failedFuture(new IOException("connection refused"))
        : CompletableFuture.completedFuture(new FakeConnection());
  }

  private final class FakeConnection implements Connection {
    private volatile boolean isClosed;

    @Override
    public CompletionStage<@Nullable Object> send(List<String> words) {
      received.add(List.copyOf(words));
      if (isAway) {
        isClosed = true;
        return CompletableFuture.failedFuture(new IOException("the connection was lost"));
      }
      if (isSilent) {
        return new CompletableFuture<>();
      }
      lock.lock();
      try {
        return CompletableFuture.completedFuture(reply(words));
      } catch (ServerErrorException e) {
        return CompletableFuture.failedFuture(e);
      } finally {
        lock.unlock();
      }
    }

    @Override
    public boolean isOpen() {
      return !isClosed;
    }

    @Override
    public void close() {
      isClosed = true;
    }
  }

  private Object reply(List<String> words) {
    String key = words.get(1);
    List<String> rest = words.subList(2, words.size());
    return switch (words.get(0)) {
      case "DEL" -> forget(key) ? 1L : 0L;
      case "RL.BLOCK" -> {
        forget(key);
        bans.put(key, clock.nanos() + FakeWords.duration(rest.get(0)).toNanos());
        yield "OK";
      }
      case "RL.RENEW" -> {
        long until = clock.nanos() + FakeWords.duration(rest.get(1)).toNanos();
        yield holders(key).replace(rest.get(0), until) == null ? 0L : 1L;
      }
      case "RL.RELEASE" -> holders(key).remove(rest.get(0)) == null ? 0L : 1L;
      case "RL.CHARGE" -> settled(FakeWords.ask(key, rest), true);
      case "RL.REFUND" -> settled(FakeWords.ask(key, rest), false);
      case "RL.PEEK" -> single(words, FakeWords.ask(key, rest), true);
      case "RL.ALL" -> several(words, false);
      case "RL.PEEKALL" -> several(words, true);
      default -> {
        List<String> all = new ArrayList<>(rest);
        all.add(0, words.get(0).replaceFirst("^RL\\.", ""));
        yield single(words, FakeWords.ask(key, all), false);
      }
    };
  }

  private boolean forget(String key) {
    boolean hadBan = bans.remove(key) != null;
    boolean hadLease = leases.remove(key) != null;
    return local.forget(key) | hadBan | hadLease;
  }

  private Map<String, Long> holders(String key) {
    Map<String, Long> all = leases.computeIfAbsent(key, one -> new HashMap<>());
    all.values().removeIf(until -> until <= clock.nanos());
    return all;
  }

  private List<Long> single(List<String> words, Ask ask, boolean isPeek) {
    Decision row = decide(List.of(ask), isPeek).get(0);
    List<Long> reply = integers(row, ask.isPartial() ? row.granted() : row.allowed() ? 1 : 0);
    boolean isPolicy = words.contains("USE") || words.get(0).equals("RL.USE");
    if (isPolicy && !words.contains("DEFAULT")) {
      throw FakeWords.error("the fake server has no policies");
    }
    if (isPolicy) {
      reply.add(row.allowed() ? 1L : 0L);
      reply.add(reply.get(3));
    }
    return reply;
  }

  private List<Object> several(List<String> words, boolean isPeek) {
    List<Ask> asks = new ArrayList<>();
    for (int at = 1; at < words.size(); at += 2) {
      asks.add(FakeWords.ask(words.get(at), Arrays.asList(words.get(at + 1).split(" "))));
    }
    List<Decision> rows = decide(asks, isPeek);
    Decision whole = Decision.combined(rows, asks.stream().map(Ask::cost).toList());
    List<Object> reply = new ArrayList<>(integers(whole, whole.allowed() ? 1 : 0));
    reply.add(whole.deciding() + 1L);
    rows.forEach(row -> reply.add(integers(row, row.allowed() ? 1 : 0)));
    return reply;
  }

  /** Decides several asks, and takes from all or from none. */
  private List<Decision> decide(List<Ask> asks, boolean isPeek) {
    boolean allowed = trial(asks).stream().allMatch(Decision::allowed);
    List<Decision> rows = allowed ? trial(asks) : untouched(asks);
    for (int at = 0; allowed && !isPeek && at < asks.size(); at++) {
      Ask ask = asks.get(at);
      if (ask.isLease()) {
        holders(ask.key()).put(ask.id(), clock.nanos() + ask.holdTtl().toNanos());
      } else {
        local.decide(List.of(ask), NO_ERROR, false);
      }
    }
    return rows;
  }

  private List<Decision> trial(List<Ask> asks) {
    return asks.stream().map(this::trial).toList();
  }

  private Decision trial(Ask ask) {
    Long until = bans.get(ask.key());
    if (until != null && until > clock.nanos()) {
      long ms = Algorithm.millis(until - clock.nanos());
      return row(ask, false, 0, ms, ms);
    }
    if (!ask.isLease()) {
      return local.decide(List.of(ask), NO_ERROR, true).get(0);
    }
    Map<String, Long> holders = holders(ask.key());
    boolean isHolder = holders.containsKey(ask.id());
    long free = ask.rule().limit() - holders.size();
    long first = holders.values().stream().mapToLong(one -> one).min().orElse(clock.nanos());
    long after = isHolder || free > 0 ? 0 : Algorithm.millis(first - clock.nanos());
    return row(ask, after == 0, isHolder ? free : Math.max(0, free - 1), after, after);
  }

  private static Decision row(Ask ask, boolean allowed, long left, long retry, long reset) {
    long limit = ask.rule().limit();
    return Decision.of(
        ask.rule(), allowed, limit, left, allowed ? 1 : 0, retry, reset, Source.LOCAL, null);
  }

  /** Returns the rows of a denied call, of which the allowed ones take nothing. */
  private List<Decision> untouched(List<Ask> asks) {
    List<Decision> rows = new ArrayList<>();
    for (Ask ask : asks) {
      Decision row = trial(ask);
      boolean isFree = row.allowed() && !ask.isLease();
      rows.add(isFree ? trial(ask.withCost(0, false).withoutLeave()) : row);
    }
    return rows;
  }

  private List<Long> settled(Ask ask, boolean isCharge) {
    if (isCharge) {
      local.decide(List.of(ask.withCost(Math.max(1, ask.cost()), true)), NO_ERROR, false);
    } else {
      local.refund(ask);
    }
    return integers(trial(ask.withCost(0, false)), 1);
  }

  private static List<Long> integers(Decision d, long first) {
    long retry = d.never() ? -1 : d.retryAfter().toMillis();
    long reset = d.resetAfter().toMillis();
    return new ArrayList<>(List.of(first, d.limit(), d.remaining(), retry, reset));
  }
}
