package redisthrottle.middleware;

import java.lang.System.Logger.Level;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;
import redisthrottle.CallOptions;
import redisthrottle.Decision;
import redisthrottle.HeaderStyle;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Proxies;
import redisthrottle.Rule;

/**
 * The limits of a middleware: the items of a request, the call that takes them, and the fields of
 * the response.
 */
public final class RequestLimits<R> {
  private static final System.Logger LOG = System.getLogger("redisthrottle.middleware");

  /** A rule of a middleware. Its key is that of the middleware if it is null. */
  record RuleEntry<R>(
      Function<R, @Nullable Rule> find, @Nullable Function<R, @Nullable String> key) {}

  /** The options, which a builder sets. */
  static final class Options<R> implements Cloneable {
    final Limiter limiter;
    final Function<R, @Nullable String> peer;
    final Function<R, List<String>> forwarded;
    List<RuleEntry<R>> entries = new ArrayList<>();
    @Nullable Function<R, @Nullable String> key;
    ToLongFunction<R> cost = request -> 1;
    Predicate<R> skip = request -> false;
    Proxies proxies = Proxies.trust(List.of());
    boolean knowsProxies;
    List<HeaderStyle> styles = List.of(HeaderStyle.DRAFT_11);
    @Nullable Rule anonymous;
    Function<R, @Nullable String> tag = request -> null;
    @Nullable String degradedHeader;

    Options(
        Limiter limiter, Function<R, @Nullable String> peer, Function<R, List<String>> forwarded) {
      this.limiter = limiter;
      this.peer = peer;
      this.forwarded = forwarded;
    }

    /** Returns the options as they are now. */
    Options<R> copy() {
      try {
        @SuppressWarnings("unchecked")
        Options<R> copy = (Options<R>) clone();
        copy.entries = List.copyOf(entries);
        return copy;
      } catch (CloneNotSupportedException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  private final Options<R> options;
  private final AtomicBoolean saidForwarded = new AtomicBoolean();

  /** The functions of keys and costs whose failure is logged. */
  private final Set<Object> failed = ConcurrentHashMap.newKeySet();

  RequestLimits(Options<R> options) {
    this.options = options;
  }

  /**
   * Returns the items of a request: none for a request that is not limited, null for a request
   * without a subject.
   *
   * @throws NoSubjectException for a cost that no call can have
   * @throws RuntimeException if a function of the application threw it, other than that of a key
   */
  public @Nullable List<Item> items(R request) {
    if (options.skip.test(request)) {
      return List.of();
    }
    List<Item> items = new ArrayList<>(options.entries.size());
    for (RuleEntry<R> entry : options.entries) {
      Rule rule = entry.find().apply(request);
      if (rule == null) {
        continue;
      }
      Item item =
          item(request, rule, subject(request, entry.key() == null ? options.key : entry.key()));
      if (item == null) {
        return anonymousItem(request);
      }
      items.add(item);
    }
    return items;
  }

  private @Nullable List<Item> anonymousItem(R request) {
    if (options.anonymous == null) {
      return null;
    }
    Item item = item(request, options.anonymous, address(request));
    return item == null ? null : List.of(item);
  }

  private @Nullable Item item(R request, Rule rule, @Nullable String subject) {
    if (!KeyParts.isSubject(subject)) {
      return null;
    }
    Item item = rule.of(subject);
    if (!rule.takesCost()) {
      return item;
    }
    long units = options.cost.applyAsLong(request);
    try {
      return item.cost(units);
    } catch (InvalidArgumentException e) {
      if (failed.add(options.cost)) {
        LOG.log(Level.WARNING, "redis-throttle: a cost function returned what no call can have", e);
      }
      throw new NoSubjectException("the cost of the request is none");
    }
  }

  private @Nullable String subject(R request, @Nullable Function<R, @Nullable String> from) {
    if (from == null) {
      return address(request);
    }
    try {
      return from.apply(request);
    } catch (RuntimeException e) {
      if (failed.add(from)) {
        LOG.log(Level.WARNING, "redis-throttle: a key function threw, so there is no subject", e);
      }
      return null;
    }
  }

  private @Nullable String address(R request) {
    List<String> fields = options.forwarded.apply(request);
    if (!fields.isEmpty() && !options.knowsProxies && saidForwarded.compareAndSet(false, true)) {
      LOG.log(
          Level.WARNING,
          "redis-throttle: X-Forwarded-For arrived, but no proxy is trusted: all clients behind a"
              + " proxy share one limit. Set trustedProxies to the networks of the proxies, or to"
              + " an empty list (in Spring Boot to none).");
    }
    return options.proxies.client(options.peer.apply(request), fields);
  }

  private CallOptions options(R request) {
    String found = options.tag.apply(request);
    if (found == null || found.isEmpty()) {
      return CallOptions.NONE;
    }
    if (!KeyParts.isSubject(found)) {
      throw new NoSubjectException("the tag of the request is not Unicode");
    }
    return CallOptions.NONE.withTag(found);
  }

  /**
   * Takes the items of a request, at least one, in one call, and waits for it. A denial is no
   * exception.
   *
   * @throws NoSubjectException for a tag with half a surrogate pair
   */
  public TakenItems take(R request, List<Item> items) {
    return TakenItems.take(options.limiter, items, options(request));
  }

  /** Takes items as {@link #take} does. Cancelling the result gives the call up. */
  public CompletableFuture<TakenItems> takeAsync(R request, List<Item> items) {
    return TakenItems.takeAsync(options.limiter, items, options(request));
  }

  /**
   * Passes the response fields of a decision to a function that adds a field, or to one that
   * replaces it. Lists are added, because they follow those of another middleware.
   */
  public void writeFields(
      Decision decision, BiConsumer<String, String> add, BiConsumer<String, String> replace) {
    decision
        .headers(options.styles, Instant.now())
        .forEach(
            (name, value) -> {
              boolean isList = name.equals("RateLimit") || name.equals("RateLimit-Policy");
              (isList ? add : replace).accept(name, value);
            });
  }

  /**
   * Returns the name of the request header that reports to the application that {@code onError}
   * decided; null without one.
   */
  public @Nullable String degradedHeader() {
    return options.degradedHeader;
  }
}
