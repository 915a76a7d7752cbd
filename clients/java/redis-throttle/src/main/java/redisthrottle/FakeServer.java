package redisthrottle;

import java.io.IOException;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
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
  private final ManualClock clock = new ManualClock();
  private final Loop loop = new Loop(clock.view());
  private final Local local = new Local(loop);
  private final Map<String, Long> bannedUntil = new HashMap<>();
  private final Deque<Object> script = new ConcurrentLinkedDeque<>();
  private final List<List<String>> received = new CopyOnWriteArrayList<>();
  private volatile boolean isDown;
  private volatile boolean isSilent;

  /** The last rule that took units of each key. */
  private final Map<String, Local.Share> taken = new HashMap<>();

  /** Creates a server that replies. */
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
    isDown = true;
  }

  /**
   * Sends no replies, until {@link #answer}. Commands that arrive are not executed. A {@link
   * Limiter#close} waits for their calls until the clock has moved by the time-out.
   */
  public void hang() {
    isSilent = true;
  }

  /** Accepts connections and replies again. */
  public void answer() {
    isDown = false;
    isSilent = false;
  }

  /** Returns the commands that arrived, in order. */
  public List<List<String>> received() {
    return List.copyOf(received);
  }

  @Override
  public CompletionStage<Connection> connect(@Nullable String node, Duration timeout) {
    return isDown
        ? CompletableFuture.failedFuture(new IOException("connection refused"))
        : CompletableFuture.completedFuture(new FakeConnection());
  }

  private final class FakeConnection implements Connection {
    private volatile boolean isClosed;

    @Override
    public CompletionStage<@Nullable Object> send(List<String> words) {
      received.add(List.copyOf(words));
      if (isDown) {
        isClosed = true;
        return CompletableFuture.failedFuture(new IOException("the connection was lost"));
      }
      return isSilent ? new CompletableFuture<>() : run(words);
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

  private synchronized CompletionStage<@Nullable Object> run(List<String> words) {
    Object reply;
    try {
      reply = decided(words.get(0), words.get(1), words.subList(2, words.size()));
    } catch (RuntimeException e) {
      // Words that no limiter sends.
      reply = new ServerErrorException("ERR invalid command: " + e.getMessage(), e);
    }
    reply = reply == null ? script.poll() : reply;
    if (reply == null) {
      String text = " is not decided here: call script() first, or use redis-throttle-lab serve";
      reply = new ServerErrorException("ERR " + words.get(0) + text, null);
    }
    return reply instanceof ServerErrorException error
        ? CompletableFuture.failedFuture(error)
        : CompletableFuture.completedFuture(reply);
  }

  /** Returns the reply to a command that the local limiter decides; null for another one. */
  private @Nullable Object decided(String command, String key, List<String> rest) {
    return switch (command) {
      case "DEL" -> forget(key) ? 1L : 0L;
      case "RL.BLOCK" -> {
        forget(key);
        bannedUntil.put(key, clock.nanos() + duration(rest.get(0)).toNanos());
        yield "OK";
      }
      case "RL.ALL", "RL.PEEKALL" -> several(key, rest, command.equals("RL.PEEKALL"));
      case "RL.PEEK", "RL.CHARGE", "RL.REFUND" -> one(command, key, rest);
      default -> {
        List<String> rule = new ArrayList<>(rest);
        rule.add(0, command.replaceFirst("^RL\\.", ""));
        yield one(command, key, rule);
      }
    };
  }

  private boolean forget(String key) {
    boolean wasBanned = bannedMs(key) > 0;
    bannedUntil.remove(key);
    Local.Share share = taken.remove(key);
    return share != null && local.forget(share) || wasBanned;
  }

  private @Nullable Object one(String command, String key, List<String> rule) {
    Local.Share share = share(key, rule);
    if (share == null) {
      return null;
    }
    long sign = command.equals("RL.CHARGE") ? 1 : command.equals("RL.REFUND") ? -1 : 0;
    if (sign != 0 && bannedMs(key) == 0) {
      taken.put(key, share);
      return row(share, local.add(share, sign * share.keyed().cost()));
    }
    return row(share, decide(List.of(share), command.equals("RL.PEEK")).get(0));
  }

  private @Nullable Object several(String first, List<String> rest, boolean isPeek) {
    List<Local.Share> shares = new ArrayList<>();
    for (int at = 0; at < rest.size(); at += 2) {
      List<String> rule = List.of(rest.get(at).split(" "));
      Local.Share share = share(at == 0 ? first : rest.get(at - 1), rule);
      if (share == null) {
        return null;
      }
      shares.add(share);
    }
    List<Decision> rows = decide(shares, isPeek);
    Decision whole = Draft.combined(rows, shares.stream().map(s -> s.keyed().cost()).toList());
    if (!whole.allowed()) {
      // A rule that allows leaves nothing to wait for.
      rows.replaceAll(d -> d.allowed() ? Draft.of(d).retryAfter(Duration.ZERO).done() : d);
    }
    List<Object> reply = new ArrayList<>(row(shares.get(whole.deciding()), whole));
    reply.add(whole.deciding() + 1L);
    for (int at = 0; at < rows.size(); at++) {
      reply.add(row(shares.get(at), rows.get(at)));
    }
    return reply;
  }

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
    return Algorithm.millis(Math.max(0, bannedUntil.getOrDefault(key, 0L) - clock.nanos()));
  }

  private Decision ban(Local.Share share) {
    Keyed keyed = share.keyed();
    long limit = keyed.rule().limit();
    long ms = bannedMs(keyed.key());
    long retry = !keyed.isPartial() && keyed.cost() > limit ? Algorithm.NEVER : ms;
    return Draft.decision(keyed.rule(), false, limit, 0, 0, retry, ms, Source.SERVER, null);
  }

  private static List<Object> row(Local.Share share, Decision d) {
    long units = !d.allowed() ? 0 : share.keyed().isPartial() ? d.granted() : 1;
    long retry = d.never() ? Algorithm.NEVER : d.retryAfter().toMillis();
    return List.of(units, d.limit(), d.remaining(), retry, d.resetAfter().toMillis());
  }

  /** Reads the words of one rule; null if this process cannot decide it. */
  private static Local.@Nullable Share share(String key, List<String> words) {
    List<String> plain = new ArrayList<>(words);
    boolean isPartial = plain.remove("PARTIAL");
    String cost = option(plain, "COST");
    String leave = option(plain, "LEAVE");
    Rule rule = rule(plain);
    if (rule == null || rule.definition.local == null) {
      return null;
    }
    long units = cost == null ? 1 : Long.parseLong(cost);
    Keyed keyed =
        new Keyed(rule, rule.definition, key, "", units, isPartial, leave, "", null).checked();
    Checks.integer("leave", keyed.unitsLeft(100), 0, Checks.UNITS_MAX);
    return new Local.Share(keyed, rule.definition.local, true);
  }

  /** Removes an option from the words, and returns its value; null without it. */
  private static @Nullable String option(List<String> words, String name) {
    int at = words.indexOf(name);
    if (at < 0) {
      return null;
    }
    words.remove(at);
    return words.remove(at);
  }

  private static @Nullable Rule rule(List<String> words) {
    return switch (words.get(0)) {
      case "GCRA" -> bucket(Kind.GCRA, words);
      case "TOKENBUCKET" -> bucket(Kind.TOKEN_BUCKET, words);
      case "LEAKYBUCKET" -> bucket(Kind.LEAKY_BUCKET, words);
      case "FIXED" -> window(Kind.FIXED, words);
      case "SLIDING" -> window(Kind.SLIDING, words);
      case "SLIDINGLOG" -> window(Kind.SLIDING_LOG, words);
      default -> null;
    };
  }

  private static Rule bucket(Kind kind, List<String> words) {
    long limit = Long.parseLong(words.get(1));
    long rate = Long.parseLong(words.get(2));
    return new Rule(RuleForms.bucket(kind, "limit", "fake", limit, rate, duration(words.get(3))));
  }

  private static Rule window(Kind kind, List<String> words) {
    long limit = Long.parseLong(words.get(1));
    Definition window = RuleForms.window(kind, "fake", limit, duration(words.get(2)));
    return new Rule(window.withWords(words));
  }

  private static Duration duration(String word) {
    BigDecimal number = new BigDecimal(word.replace("ms", ""));
    return Duration.ofNanos(number.movePointRight(word.endsWith("ms") ? 6 : 9).longValueExact());
  }
}
