package redisthrottle.servlet;

import jakarta.servlet.http.HttpServletRequest;
import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Item;
import redisthrottle.Proxies;
import redisthrottle.Rule;

/** The items of requests. */
final class Subjects {
  private static final System.Logger LOG = System.getLogger("redisthrottle.servlet");

  private final List<ThrottleFilterBuilder.RuleEntry> entries;
  private final @Nullable Function<HttpServletRequest, @Nullable String> key;
  private final ToLongFunction<HttpServletRequest> cost;
  private final @Nullable Rule anonymous;
  private final Proxies proxies;
  private final boolean knowsProxies;
  private final AtomicBoolean saidForwarded = new AtomicBoolean();
  private final AtomicBoolean saidKey = new AtomicBoolean();

  Subjects(ThrottleFilterBuilder options) {
    entries = List.copyOf(options.entries);
    key = options.key;
    cost = options.cost;
    anonymous = options.anonymous;
    proxies = options.proxies;
    knowsProxies = options.knowsProxies;
  }

  /** Returns the items of a request; null for a request without a subject. */
  @Nullable List<Item> items(HttpServletRequest request) {
    List<Item> items = new ArrayList<>(entries.size());
    for (ThrottleFilterBuilder.RuleEntry entry : entries) {
      Rule rule = entry.find().apply(request);
      if (rule == null) {
        continue;
      }
      Item item = item(request, rule, subject(request, entry.key() == null ? key : entry.key()));
      if (item == null) {
        return anonymousItem(request);
      }
      items.add(item);
    }
    return items;
  }

  private @Nullable List<Item> anonymousItem(HttpServletRequest request) {
    if (anonymous == null) {
      return null;
    }
    Item item = item(request, anonymous, address(request));
    return item == null ? null : List.of(item);
  }

  private @Nullable Item item(HttpServletRequest request, Rule rule, @Nullable String subject) {
    if (subject == null || subject.isEmpty()) {
      return null;
    }
    Item item;
    try {
      item = rule.of(subject);
    } catch (InvalidArgumentException e) {
      // An unpaired surrogate.
      return null;
    }
    return rule.takesCost() ? item.cost(cost.applyAsLong(request)) : item;
  }

  private @Nullable String subject(
      HttpServletRequest request, @Nullable Function<HttpServletRequest, @Nullable String> from) {
    if (from == null) {
      return address(request);
    }
    try {
      return from.apply(request);
    } catch (RuntimeException e) {
      if (saidKey.compareAndSet(false, true)) {
        LOG.log(Level.WARNING, "redis-throttle: a key function threw, so there is no subject", e);
      }
      return null;
    }
  }

  private @Nullable String address(HttpServletRequest request) {
    List<String> forwarded = Collections.list(request.getHeaders("X-Forwarded-For"));
    if (!forwarded.isEmpty() && !knowsProxies && saidForwarded.compareAndSet(false, true)) {
      LOG.log(
          Level.WARNING,
          "redis-throttle: X-Forwarded-For arrived, but no proxy is trusted: all clients behind a"
              + " proxy share one limit. Set trustedProxies to the networks of the proxies, or to"
              + " none.");
    }
    return proxies.subject(request.getRemoteAddr(), forwarded);
  }
}
