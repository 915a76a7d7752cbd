package redisthrottle;

import java.io.IOException;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.CopyOnWriteArrayList;
import org.jspecify.annotations.Nullable;

/**
 * A server in this process, for the tests of an application. Its clock, which is also that of the
 * limiters that {@link #limiter} builds, stands still until {@link #advance} moves it.
 *
 * <p>It decides GCRA, buckets, windows and logs, by the algorithms of {@link OnError#LOCAL}. The
 * replies to commands of leases, reservations, quotas, backoffs and policies come from {@link
 * #script}. The program {@code redis-throttle-lab serve} decides all of them without a Redis.
 */
public final class FakeServer implements Connector {
  /** The kinds that it decides, by their words. */
  private static final Map<String, Kind> BY_WORD =
      Map.of(
          "GCRA", Kind.GCRA,
          "TOKENBUCKET", Kind.TOKEN_BUCKET,
          "LEAKYBUCKET", Kind.LEAKY_BUCKET,
          "FIXED", Kind.FIXED,
          "SLIDING", Kind.SLIDING,
          "SLIDINGLOG", Kind.SLIDING_LOG);

  private final ManualClock clock = new ManualClock();
  private final Loop loop = new Loop(clock.view());
  private final Local local = new Local(loop);

  /** The last rule that took units of each key. */
  private final Map<String, Local.Share> taken = new HashMap<>();

  /** The ends of the bans by key. */
  private final Map<String, Long> bans = new HashMap<>();

  private final Deque<Object> script = new ConcurrentLinkedDeque<>();
  private final List<List<String>> received = new CopyOnWriteArrayList<>();
  private volatile boolean isAway;
  private volatile boolean isSilent;

  /** Makes a server that answers. */
  public FakeServer() {}

  /** Returns a builder of a limiter over this server and its clock. */
  public LimiterBuilder limiter() {
    return new LimiterBuilder(this, clock::view, Runnable::run).jitter(() -> 1);
  }

  /**
   * Moves the clock, and runs what is due until then.
   *
   * @throws InvalidArgumentException for a negative time, because the clock never goes back
   */
  public void advance(Duration time) {
    if (Checks.present("time", time).isNegative()) {
      throw Checks.invalid("time", "a duration from 0");
    }
    clock.runUntil(clock.nanos() + time.toNanos());
  }

  /**
   * Adds replies to the next commands that it does not decide, one for each command: integers,
   * texts, lists of these, or a {@link ServerErrorException}. A command without a reply is
   * rejected.
   */
  public void script(Object... replies) {
    for (Object one : Checks.present("replies", replies)) {
      script.add(reply(Checks.present("replies", one)));
    }
  }

  /** Returns a reply as a connection returns it. */
  private static Object reply(Object given) {
    if (given instanceof List<?> list) {
      return list.stream().map(FakeServer::reply).toList();
    }
    return given instanceof Integer number ? (Object) number.longValue() : given;
  }

  /** Refuses connections and loses commands, until {@link #answer}. */
  public void goAway() {
    isAway = true;
  }

  /**
   * Sends no replies, until {@link #answer}. Commands that arrive are not executed. A {@link
   * Limiter#close} waits for their calls until the clock has moved by the time-out.
   */
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
      try {
        return CompletableFuture.completedFuture(run(words));
      } catch (ServerErrorException e) {
        return CompletableFuture.failedFuture(e);
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

  /** Runs a command, and returns its reply. */
  private synchronized Object run(List<String> words) {
    Object reply;
    try {
      reply = decided(words.get(0), words.get(1), words.subList(2, words.size()));
    } catch (RuntimeException e) {
      // Words that no limiter sends.
      throw new ServerErrorException("ERR invalid command: " + e.getMessage(), e);
    }
    reply = reply == null ? script.poll() : reply;
    if (reply == null) {
      String text = " is not decided here: call script() first, or use redis-throttle-lab serve";
      throw new ServerErrorException("ERR " + words.get(0) + text, null);
    }
    if (reply instanceof ServerErrorException error) {
      throw error;
    }
    return reply;
  }

  /** Returns the reply to a command that the local limiter decides; null for another one. */
  private @Nullable Object decided(String command, String key, List<String> rest) {
    return switch (command) {
      case "DEL" -> forget(key) ? 1L : 0L;
      case "RL.BLOCK" -> {
        forget(key);
        bans.put(key, clock.nanos() + duration(rest.get(0)).toNanos());
        yield "OK";
      }
      case "RL.ALL", "RL.PEEKALL" -> several(key, rest, command.equals("RL.PEEKALL"));
      default -> one(command.replaceFirst("^RL\\.", ""), key, rest);
    };
  }

  private boolean forget(String key) {
    boolean wasBanned = bannedMs(key) > 0;
    bans.remove(key);
    Local.Share share = taken.remove(key);
    return share != null && local.forget(share) || wasBanned;
  }

  private @Nullable Object one(String command, String key, List<String> rest) {
    boolean isSettled = command.equals("CHARGE") || command.equals("REFUND");
    boolean isPeek = command.equals("PEEK");
    List<String> rule = new ArrayList<>(rest);
    if (!isSettled && !isPeek) {
      rule.add(0, command);
    }
    Local.Share share = share(key, rule);
    if (share == null) {
      return null;
    }
    if (isSettled && bannedMs(key) == 0) {
      taken.put(key, share);
      long units = share.keyed().cost();
      return row(share, local.add(share, command.equals("CHARGE") ? units : -units));
    }
    return row(share, decide(List.of(share), isPeek).get(0));
  }

  private @Nullable Object several(String first, List<String> rest, boolean isPeek) {
    List<Local.Share> shares = new ArrayList<>();
    for (int at = 0; at < rest.size(); at += 2) {
      String key = at == 0 ? first : rest.get(at - 1);
      Local.Share share = share(key, Arrays.asList(rest.get(at).split(" ")));
      if (share == null) {
        return null;
      }
      shares.add(share);
    }
    List<Decision> rows = decide(shares, isPeek);
    List<Long> costs = shares.stream().map(share -> share.keyed().cost()).toList();
    Decision whole = Draft.combined(rows, costs);
    if (!whole.allowed()) {
      // A rule that allows leaves nothing to wait for.
      rows.replaceAll(d -> d.allowed() ? Draft.of(d).retryAfter(Duration.ZERO).done() : d);
    }
    List<Object> reply = new ArrayList<>(integers(1, whole));
    reply.add(whole.deciding() + 1L);
    for (int at = 0; at < rows.size(); at++) {
      reply.add(row(shares.get(at), rows.get(at)));
    }
    return reply;
  }

  /** Decides the rules of a call, which takes from all or from none. */
  private List<Decision> decide(List<Local.Share> shares, boolean isPeek) {
    boolean isBanned = shares.stream().anyMatch(share -> bannedMs(share.keyed().key()) > 0);
    List<Decision> rows = local.decide(shares, null, isBanned, isPeek);
    for (int at = 0; at < rows.size(); at++) {
      Local.Share share = shares.get(at);
      if (bannedMs(share.keyed().key()) > 0) {
        rows.set(at, ban(share));
      } else if (!isPeek && rows.get(at).granted() > 0) {
        taken.put(share.keyed().key(), share);
      }
    }
    return rows;
  }

  private long bannedMs(String key) {
    return Algorithm.millis(Math.max(0, bans.getOrDefault(key, 0L) - clock.nanos()));
  }

  private Decision ban(Local.Share share) {
    Keyed keyed = share.keyed();
    long limit = keyed.rule().limit();
    long ms = bannedMs(keyed.key());
    long retry = !keyed.isPartial() && keyed.cost() > limit ? Algorithm.NEVER : ms;
    return Draft.decision(keyed.rule(), false, limit, 0, 0, retry, ms, Source.SERVER, null);
  }

  private static List<Object> row(Local.Share share, Decision d) {
    return integers(share.keyed().isPartial() ? d.granted() : 1, d);
  }

  private static List<Object> integers(long units, Decision d) {
    long first = d.allowed() ? units : 0;
    long retry = d.never() ? Algorithm.NEVER : d.retryAfter().toMillis();
    return List.of(first, d.limit(), d.remaining(), retry, d.resetAfter().toMillis());
  }

  /** Reads the words of one rule; null if this process cannot decide it. */
  private static Local.@Nullable Share share(String key, List<String> words) {
    List<String> plain = new ArrayList<>();
    long cost = 1;
    boolean isPartial = false;
    String leave = null;
    for (Iterator<String> in = words.iterator(); in.hasNext(); ) {
      String word = in.next();
      switch (word) {
        case "COST" -> cost = Long.parseLong(in.next());
        case "PARTIAL" -> isPartial = true;
        case "LEAVE" -> leave = in.next();
        default -> plain.add(word);
      }
    }
    Rule rule = rule(plain);
    if (rule == null || rule.definition.local == null) {
      return null;
    }
    Keyed keyed =
        new Keyed(rule, rule.definition, key, "", cost, isPartial, leave, "", null).checked();
    Checks.integer("leave", keyed.unitsLeft(100), 0, Checks.UNITS_MAX);
    return new Local.Share(keyed, rule.definition.local, true);
  }

  private static @Nullable Rule rule(List<String> words) {
    Kind kind = BY_WORD.get(words.get(0));
    if (kind == null) {
      return null;
    }
    long limit = units(words, 1);
    if (kind == Kind.FIXED || kind == Kind.SLIDING || kind == Kind.SLIDING_LOG) {
      Duration window = duration(words.get(2));
      return new Rule(RuleForms.window(kind, "fake", limit, window).withWords(words));
    }
    Duration period = duration(words.get(3));
    return new Rule(RuleForms.bucket(kind, "limit", "fake", limit, units(words, 2), period));
  }

  private static long units(List<String> words, int at) {
    return Long.parseLong(words.get(at));
  }

  private static Duration duration(String word) {
    BigDecimal number = new BigDecimal(word.replace("ms", ""));
    return Duration.ofNanos(number.movePointRight(word.endsWith("ms") ? 6 : 9).longValueExact());
  }
}
