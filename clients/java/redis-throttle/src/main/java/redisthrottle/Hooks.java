package redisthrottle;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/**
 * Reports decisions, ends of admissions and rejections to the application, outside of the loop,
 * because its functions may block.
 */
final class Hooks {
  private static final System.Logger LOGGER = System.getLogger("redisthrottle");

  /** The instant of a call that was not sent. */
  static final long NOT_SENT = Long.MIN_VALUE;

  private final Keys keys;
  private final Loop loop;
  private final List<Consumer<Event>> hooks = new CopyOnWriteArrayList<>();

  Hooks(Keys keys, Loop loop) {
    this.keys = keys;
    this.loop = loop;
  }

  void add(Consumer<Event> hook) {
    hooks.add(hook);
  }

  /**
   * Has each hook called once, with the rule that decided. Call it in the loop. An error of a hook
   * is logged.
   */
  void tell(
      EventKind kind,
      @Nullable Decision decision,
      @Nullable RuntimeException error,
      List<Keyed> all,
      long askedAt) {
    if (hooks.isEmpty() || all.isEmpty()) {
      return;
    }
    int deciding = decision == null ? 0 : decision.deciding();
    Keyed keyed = all.get(deciding < all.size() ? deciding : 0);
    boolean degraded = decision != null && decision.degraded();
    long nanos = askedAt == NOT_SENT ? 0 : loop.nanos() - askedAt;
    Event event =
        new Event(
            kind,
            decision,
            keyed.rule(),
            keys.keyHash(keyed.subject()),
            Duration.ofNanos(nanos),
            degraded,
            error);
    loop.reports.add(() -> call(event));
  }

  private void call(Event event) {
    for (Consumer<Event> hook : hooks) {
      try {
        hook.accept(event);
      } catch (RuntimeException | Error e) {
        LOGGER.log(System.Logger.Level.ERROR, "redis-throttle: the hook of decisions failed", e);
      }
    }
  }
}
