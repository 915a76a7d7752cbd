package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.DoubleSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/**
 * The calls of a limiter. Each method validates its arguments in the thread of the caller, and
 * returns the work that follows in the loop.
 */
final class Steps {
  final Loop loop;
  final Options options;
  final Keys keys;
  final Exchange exchange;
  final Events events;
  final Fallback fallback;
  final Denials denials;
  final Prefetcher stocks;
  final Ending ending;
  final Holding holding;

  final Closing closing;
  private final Guard.Owner owner;
  private final Routes routes;
  private final Entry entry;

  Steps(
      Connector connector,
      Options options,
      Supplier<Clock> clock,
      DoubleSupplier jitter,
      Executor executor) {
    this.options = options;
    this.keys = new Keys(options.prefix, options.isTagged, options.hmacSecret);
    this.loop = new Loop(clock.get());
    this.entry = new Entry(loop, executor);
    Link.Terms terms = new Link.Terms(loop, connector, options, jitter);
    List<String> seeds = connector.seeds();
    this.routes = seeds.isEmpty() ? new Routes.Single(terms) : new Cluster(terms, seeds);
    this.exchange = new Exchange(loop, options, routes);
    this.denials = new Denials(loop, options);
    this.events = new Events(exchange, keys);
    this.fallback = new Fallback(loop, options, events, denials);
    this.stocks = new Prefetcher(loop);
    this.ending = new Ending(exchange, events, denials);
    this.holding = new Holding(loop, ending);
    this.closing = new Closing(connector, exchange, events, stocks, ending);
    this.owner = new Guard.Owner(loop, entry, closing::ended);
  }

  Entry entry() {
    return entry;
  }

  /** Begins the first dial: the driver's classes are loaded before the first call. */
  void dial() {
    loop.execute(routes::dial);
  }

  Keyed keyed(Item given, CallOptions call) {
    closing.check();
    return known(given, call);
  }

  /** Returns an item, also after the end of the limiter. */
  private Keyed known(Item given, CallOptions call) {
    Item item = Checks.present("item", given);
    Checks.present("options", call);
    item.rule.definition.checkLocal(fallback.onErrorOf(item.rule.definition));
    String key = keys.key(item.rule.name(), item.subject, call.tag());
    return keyed(item, key, call.id() == null ? "" : call.id());
  }

  /** Returns an item with its key, and the id of a lease or a reservation. */
  static Keyed keyed(Item item, String key, String id) {
    return new Keyed(
        item.rule,
        item.rule.definition,
        key,
        item.subject,
        item.cost,
        item.isPartial,
        item.leave,
        id,
        item.ttl);
  }

  /** Returns an item that is no reservation. */
  private static Keyed single(Keyed keyed) {
    if (keyed.isReservation()) {
      throw invalid("item", "no reservation: admit and reserve take one");
    }
    return keyed;
  }

  List<Keyed> all(List<Item> items, CallOptions call) {
    closing.check();
    List<Keyed> all = new ArrayList<>();
    for (Item item : Checks.present("items", items)) {
      Keyed keyed = keyed(Checks.present("items", item), call);
      if (keyed.isPartial()) {
        throw invalid("partial", "a check of one rule");
      }
      all.add(keyed);
    }
    return all;
  }

  Work<Decision> check(Item item, CallOptions given) {
    Keyed keyed = single(keyed(item, given));
    if (keyed.isLease()) {
      throw invalid("rule", "no lease: Limiter.lease takes one");
    }
    Words call = Words.single("CHECK", keyed);
    int batch = prefetchOf(keyed);
    List<Keyed> all = List.of(keyed);
    return signal -> {
      Decision permit = batch > 1 ? stocks.spend(keyed) : null;
      if (permit == null && !keyed.isPartial()) {
        permit = denials.cache.get(call);
      }
      if (permit != null) {
        Decision known = events.counted(EventKind.CHECK, permit, all, Events.NOT_SENT);
        return CompletableFuture.completedFuture(known);
      }
      return fallback.decided(
          EventKind.CHECK,
          all,
          true,
          () -> batch > 1 ? fetched(keyed, call, batch, signal) : decided(call, all, signal));
    };
  }

  private CompletableFuture<Decision> decided(Words call, List<Keyed> all, Signal signal) {
    Words cached = all.get(0).isPartial() ? null : call;
    Inquiry inquiry = new Inquiry(denials, all, cached, false, true);
    return exchange.send(call, inquiry, signal).thenApply(inquiry::read);
  }

  private int prefetchOf(Keyed keyed) {
    if (!keyed.isPlain() || !keyed.definition().isPrefetchable()) {
      return 1;
    }
    int own = keyed.definition().choices.prefetch();
    return own == 0 ? options.prefetch : own;
  }

  /**
   * Takes a permit of a fetch. Other callers may share the fetch, so this caller does not end it.
   */
  private CompletableFuture<Decision> fetched(Keyed keyed, Words plain, int batch, Signal signal) {
    if (closing.hasBegun()) {
      return CompletableFuture.failedFuture(Errors.closed());
    }
    Prefetcher.Wanted wanted =
        new Prefetcher.Wanted(
            keyed,
            batch,
            permits -> {
              Keyed whole = keyed.withCost(permits, true);
              Inquiry inquiry = new Inquiry(denials, List.of(whole), plain, false, true);
              return exchange
                  .send(Words.one("CHECK", whole), inquiry, Signal.NONE)
                  .thenApply(inquiry::read);
            });
    return stocks.take(wanted, exchange.nodeOf(plain), exchange.timeoutNs, signal);
  }

  Work<Decision> peek(Item item, CallOptions given) {
    Keyed request = single(keyed(item, given));
    boolean needsId = request.isLease() && request.id().isEmpty();
    Keyed keyed = needsId ? request.withId(UUID.randomUUID().toString()) : request;
    if (keyed.isPartial()) {
      throw invalid("partial", "a check");
    }
    Words call = Words.single("PEEK", keyed);
    List<Keyed> all = List.of(keyed);
    boolean isKnown = !keyed.isHeld();
    return signal -> {
      Inquiry inquiry = new Inquiry(denials, all, null, false, isKnown);
      return fallback.decided(
          EventKind.PEEK,
          all,
          isKnown,
          () -> exchange.send(call, inquiry, signal).thenApply(inquiry::read));
    };
  }

  /** Charges or refunds an item. */
  Work<Decision> settled(EventKind kind, Item item, CallOptions given) {
    closing.check();
    return givenBack(kind, item, given);
  }

  /** Charges or refunds an item, also after the end of the limiter. */
  Work<Decision> givenBack(EventKind kind, Item item, CallOptions given) {
    Keyed keyed = single(known(item, given));
    if (keyed.isPartial() || keyed.leave() != null) {
      throw invalid("item", "neither partial nor leave in a refund and a charge");
    }
    Words call = Words.single(kind.name(), keyed);
    return signal -> {
      long calledAt = loop.nanos();
      denials.forget(kind, keyed.key());
      return events
          .send(call, signal, List.of(keyed))
          .whenComplete((reply, error) -> denials.forget(kind, keyed.key()))
          .thenApply(
              reply -> {
                Decision d = readSettled(reply, keyed, calledAt);
                events.report(kind, d, null, List.of(keyed), calledAt);
                return d;
              });
    };
  }

  private Decision readSettled(@Nullable Object reply, Keyed keyed, long calledAt) {
    try {
      return Replies.settled(reply, keyed.rule());
    } catch (CommandRejectedException e) {
      throw Errors.classified(events.noteRejection(e, List.of(keyed), calledAt));
    }
  }

  Work<Boolean> forget(Item item, CallOptions given) {
    Keyed keyed = single(keyed(item, given));
    return signal ->
        forgetting(keyed, Words.forget(keyed.key()), signal)
            .thenApply(reply -> Replies.integer(reply) > 0);
  }

  Work<Boolean> block(Item item, Duration d, CallOptions given) {
    Keyed keyed = single(keyed(item, given));
    Words call = Words.block(keyed.key(), d);
    return signal -> forgetting(keyed, call, signal).thenApply(reply -> true);
  }

  /** Sends a call, before and after which this process forgets what it keeps of the key. */
  private CompletableFuture<@Nullable Object> forgetting(Keyed keyed, Words call, Signal signal) {
    Runnable forget =
        () -> {
          denials.forget(keyed.key());
          stocks.forget(keyed.key());
        };
    forget.run();
    // Again, because calls in flight may have stored results in the meantime.
    return events.send(call, signal, List.of(keyed)).whenComplete((reply, error) -> forget.run());
  }

  Work<Decision> checkAll(List<Item> items, CallOptions given) {
    List<Keyed> all = all(items, given);
    Words call = Words.several(all, false);
    if (all.stream().anyMatch(Keyed::isHeld)) {
      return signal -> taking(EventKind.CHECK, call, all, true, false, signal);
    }
    return signal -> {
      Decision denied = denials.cache.get(call);
      if (denied != null) {
        Decision known = events.counted(EventKind.CHECK, denied, all, Events.NOT_SENT);
        return CompletableFuture.completedFuture(known);
      }
      return several(EventKind.CHECK, call, all, call, signal);
    };
  }

  Work<Decision> peekAll(List<Item> items, CallOptions given) {
    List<Keyed> all = all(items, given);
    Words call = Words.several(all, true);
    return signal -> several(EventKind.PEEK, call, all, null, signal);
  }

  private CompletableFuture<Decision> several(
      EventKind kind, Words call, List<Keyed> all, @Nullable Words cached, Signal signal) {
    boolean isKnown = all.stream().noneMatch(Keyed::isHeld);
    Inquiry inquiry = new Inquiry(denials, all, cached, true, isKnown);
    return fallback.decided(
        kind,
        all,
        isKnown,
        () -> tooMany(exchange.send(call, inquiry, signal).thenApply(inquiry::read), all));
  }

  /** Decides a call with leases and reservations, or of an admission. */
  private CompletableFuture<Decision> taking(
      EventKind kind,
      Words call,
      List<Keyed> all,
      boolean isSeveral,
      boolean isCounted,
      Signal signal) {
    return ending.abandoning(
        all,
        isSeveral,
        isCounted,
        taking ->
            fallback.decided(
                kind,
                all,
                false,
                () -> {
                  CompletableFuture<Decision> decision =
                      exchange.send(call, taking, signal).thenApply(taking::read);
                  return isSeveral ? tooMany(decision, all) : decision;
                }));
  }

  /** Makes a denial of the error of a key that remembers too many ids. */
  private static CompletableFuture<Decision> tooMany(
      CompletableFuture<Decision> decision, List<Keyed> all) {
    return Errors.recovered(
        decision,
        error -> {
          Decision denial = Replies.tooMany(error, all);
          return denial == null
              ? CompletableFuture.failedFuture(error)
              : CompletableFuture.completedFuture(denial);
        });
  }

  Work<Lease> lease(Item item, CallOptions given) {
    Keyed request = single(keyed(item, given));
    if (!request.isLease()) {
      throw invalid("rule", "a rule made by Rule.lease");
    }
    Keyed keyed = given.id() == null ? request.withId(UUID.randomUUID().toString()) : request;
    Words call = Words.single("CHECK", keyed);
    List<Keyed> all = List.of(keyed);
    return Work.undoing(
        signal -> {
          long calledAt = loop.nanos();
          return taking(EventKind.LEASE, call, all, false, false, signal)
              .thenApply(closing::granted)
              .thenApply(
                  d -> ending.guarded(all, false, () -> holding.lease(owner, keyed, d, calledAt)))
              .thenApply(closing::kept);
        },
        lease -> lease.releaseAsync());
  }

  Work<Admission> admit(List<Item> items, CallOptions given) {
    String own = Checks.present("options", given).id();
    String id = own == null ? UUID.randomUUID().toString() : own;
    Keyed.checkAdmissionId(id);
    List<Keyed> all = all(items, given.withId(id));
    Words call = Words.several(all, false);
    return Work.undoing(
        signal -> {
          long calledAt = loop.nanos();
          return taking(EventKind.CHECK, call, all, true, true, signal)
              .thenApply(closing::granted)
              .thenApply(
                  d ->
                      ending.guarded(
                          all, true, () -> holding.admission(owner, all, d, id, calledAt)))
              .thenApply(closing::kept);
        },
        admission -> admission.finishAsync());
  }

  Work<Reservation> reserve(Item item, CallOptions given) {
    if (Checks.present("item", item).ttl == null) {
      throw invalid("item", "a reservation made by Item.reserve");
    }
    Work<Admission> admission = admit(List.of(item), given);
    return Work.undoing(
        signal ->
            admission.begin(signal).thenApply(admitted -> new Reservation(admitted, item.rule)),
        Reservation::cancelAsync);
  }

  Work<Backend> ready() {
    closing.check();
    Words call = Words.probe(keys.key("ready", "ready", null));
    long withinNs = options.patience(true).toNanos();
    return signal ->
        events
            .noting(List.of(), () -> exchange.sendReady(call, withinNs, signal))
            .thenApply(reply -> exchange.backends.current());
  }

  int openBreakers() {
    if (loop.isMine()) {
      return exchange.openBreakers();
    }
    CompletableFuture<Integer> count = new CompletableFuture<>();
    loop.execute(() -> count.complete(exchange.openBreakers()));
    return count.join();
  }

  /** Gives back what an allowed call took; see {@link Limiter#giveBack(Item, Decision)}. */
  void giveBack(Item item, Decision taken, CallOptions given) {
    Keyed keyed = single(keyed(item, given)).withoutLeave();
    Decision row = Checks.present("taken", taken);
    // A call that shadow mode allowed took nothing.
    if (!row.wouldAllow() || row.granted() < 1 || row.source() == Source.ERROR) {
      return;
    }
    Item units = item.rule.of(item.subject).cost(row.granted());
    Work<Decision> refund = settled(EventKind.REFUND, units, given);
    loop.execute(
        () -> {
          if (row.source() == Source.SERVER || !putBack(keyed, row)) {
            refund.begin(Signal.NONE);
          }
        });
  }

  /** Returns units that this process granted. Returns false if it cannot. */
  private boolean putBack(Keyed keyed, Decision row) {
    Reason reason = row.reason();
    if (reason == null) {
      denials.forget(keyed.key());
      return stocks.putBack(keyed, prefetchOf(keyed));
    }
    denials.forgetCached(keyed.key());
    fallback.refundLocal(keyed.withCost(row.granted(), false), reason);
    return true;
  }
}
