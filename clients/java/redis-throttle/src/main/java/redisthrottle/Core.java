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
final class Core {
  final Loop loop;
  final Options options;
  final Keys keys;
  final Exchange exchange;
  final Decider decider;
  final Denials denials;
  final Prefetcher stocks;
  final Ending ending;
  final Holding holding;

  final Closing closing;
  private final Routes routes;
  private final Entry entry;

  Core(
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
    this.decider = new Decider(exchange, keys, denials.known);
    this.stocks = new Prefetcher(loop);
    this.ending = new Ending(exchange, decider, denials);
    this.holding = new Holding(loop, ending);
    this.closing = new Closing(this, connector);
  }

  Entry entry() {
    return entry;
  }

  /** Begins the first dial: the driver's classes are loaded before the first call. */
  void dial() {
    loop.execute(routes::dial);
  }

  Ask ask(Item given, CallOptions call) {
    closing.check();
    return known(given, call);
  }

  /** Returns an item, also after the end of the limiter. */
  private Ask known(Item given, CallOptions call) {
    Item item = Checks.present("item", given);
    Checks.present("options", call);
    item.rule.checkedLocal(decider.onErrorOf(item.rule));
    String key = keys.key(item.rule.name(), item.subject, call.tag());
    String id = call.id() == null ? "" : call.id();
    return new Ask(
        item.rule, key, item.subject, item.cost, item.isPartial, item.leave, id, item.ttl);
  }

  /** Returns an item that is no reservation. */
  private static Ask single(Ask ask) {
    if (ask.isReservation()) {
      throw invalid("item", "no reservation: admit and reserve take one");
    }
    return ask;
  }

  List<Ask> asks(List<Item> items, CallOptions call) {
    closing.check();
    List<Ask> asks = new ArrayList<>();
    for (Item item : Checks.present("items", items)) {
      Ask ask = ask(Checks.present("items", item), call);
      if (ask.isPartial()) {
        throw invalid("partial", "a check of one rule");
      }
      asks.add(ask);
    }
    return asks;
  }

  Work<Decision> check(Item item, CallOptions given) {
    Ask ask = single(ask(item, given));
    if (ask.isLease()) {
      throw invalid("rule", "no lease: Limiter.lease takes one");
    }
    Call call = Call.single("CHECK", ask);
    int batch = prefetchOf(ask);
    List<Ask> asks = List.of(ask);
    return signal -> {
      Decision permit = batch > 1 ? stocks.spend(ask.key(), ask.rule()) : null;
      if (permit == null && !ask.isPartial()) {
        permit = denials.cache.get(call);
      }
      if (permit != null) {
        Decision known = decider.counted(EventKind.CHECK, permit, asks, Hooks.NOT_SENT);
        return CompletableFuture.completedFuture(known);
      }
      return decider.decided(
          EventKind.CHECK,
          asks,
          true,
          () -> batch > 1 ? fetched(ask, call, batch, signal) : decided(call, asks, signal));
    };
  }

  private CompletableFuture<Decision> decided(Call call, List<Ask> asks, Signal signal) {
    Call cached = asks.get(0).isPartial() ? null : call;
    Inquiry inquiry = new Inquiry(denials, asks, cached, false, true);
    return exchange.send(call, inquiry, signal).thenApply(inquiry::read);
  }

  private int prefetchOf(Ask ask) {
    if (!ask.isPlain() || !ask.rule().isPrefetchable()) {
      return 1;
    }
    int own = ask.rule().definition.prefetch();
    return own == 0 ? options.prefetch : own;
  }

  /**
   * Takes a permit of a fetch. Other callers may share the fetch, so this caller does not end it.
   */
  private CompletableFuture<Decision> fetched(Ask ask, Call plain, int batch, Signal signal) {
    if (closing.hasBegun()) {
      return CompletableFuture.failedFuture(Closing.error());
    }
    Prefetcher.Wanted wanted =
        new Prefetcher.Wanted(
            ask.rule(),
            ask.key(),
            batch,
            permits -> {
              Ask whole = ask.withCost(permits, true);
              Inquiry inquiry = new Inquiry(denials, List.of(whole), plain, false, true);
              return exchange
                  .send(Call.one("CHECK", whole), inquiry, Signal.NONE)
                  .thenApply(inquiry::read);
            });
    return stocks.take(wanted, exchange.nodeOf(plain), exchange.timeoutNs, signal);
  }

  Work<Decision> peek(Item item, CallOptions given) {
    Ask asked = single(ask(item, given));
    boolean needsId = asked.isLease() && asked.id().isEmpty();
    Ask ask = needsId ? asked.withId(UUID.randomUUID().toString()) : asked;
    if (ask.isPartial()) {
      throw invalid("partial", "a check");
    }
    Call call = Call.single("PEEK", ask);
    List<Ask> asks = List.of(ask);
    boolean isKnown = !ask.isHeld();
    return signal -> {
      Inquiry inquiry = new Inquiry(denials, asks, null, false, isKnown);
      return decider.decided(
          EventKind.PEEK,
          asks,
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
    Ask ask = single(known(item, given));
    if (ask.isPartial() || ask.leave() != null) {
      throw invalid("item", "neither partial nor leave in a refund and a charge");
    }
    Call call = Call.single(kind.name(), ask);
    return signal -> {
      long askedAt = loop.nanos();
      denials.forget(kind, ask.key());
      return decider
          .answer(call, signal, List.of(ask))
          .whenComplete((reply, error) -> denials.forget(kind, ask.key()))
          .thenApply(
              reply -> {
                Decision d = readSettled(reply, ask, askedAt);
                decider.hooks.tell(kind, d, null, List.of(ask), askedAt);
                return d;
              });
    };
  }

  private Decision readSettled(@Nullable Object reply, Ask ask, long askedAt) {
    try {
      return Replies.settled(reply, ask.rule());
    } catch (CommandRejectedException e) {
      throw Failures.classified(decider.noteRejection(e, List.of(ask), askedAt));
    }
  }

  Work<Boolean> forget(Item item, CallOptions given) {
    Ask ask = single(ask(item, given));
    return signal ->
        forgetting(ask, Call.forget(ask.key()), signal)
            .thenApply(reply -> Replies.integer(reply) > 0);
  }

  Work<Boolean> block(Item item, Duration d, CallOptions given) {
    Ask ask = single(ask(item, given));
    Call call = Call.block(ask.key(), d);
    return signal -> forgetting(ask, call, signal).thenApply(reply -> true);
  }

  /** Sends a call, before and after which this process forgets what it keeps of the key. */
  private CompletableFuture<@Nullable Object> forgetting(Ask ask, Call call, Signal signal) {
    Runnable forget =
        () -> {
          denials.forget(ask.key());
          stocks.forget(ask.key());
        };
    forget.run();
    // Again, because calls in flight may have stored results in the meantime.
    return decider.answer(call, signal, List.of(ask)).whenComplete((reply, error) -> forget.run());
  }

  Work<Decision> checkAll(List<Item> items, CallOptions given) {
    List<Ask> asks = asks(items, given);
    Call call = Call.several(asks, false);
    if (asks.stream().anyMatch(Ask::isHeld)) {
      return signal -> taking(EventKind.CHECK, call, asks, true, false, signal);
    }
    return signal -> {
      Decision denied = denials.cache.get(call);
      if (denied != null) {
        Decision known = decider.counted(EventKind.CHECK, denied, asks, Hooks.NOT_SENT);
        return CompletableFuture.completedFuture(known);
      }
      return several(EventKind.CHECK, call, asks, call, signal);
    };
  }

  Work<Decision> peekAll(List<Item> items, CallOptions given) {
    List<Ask> asks = asks(items, given);
    Call call = Call.several(asks, true);
    return signal -> several(EventKind.PEEK, call, asks, null, signal);
  }

  private CompletableFuture<Decision> several(
      EventKind kind, Call call, List<Ask> asks, @Nullable Call cached, Signal signal) {
    boolean isKnown = asks.stream().noneMatch(Ask::isHeld);
    Inquiry inquiry = new Inquiry(denials, asks, cached, true, isKnown);
    return decider.decided(
        kind,
        asks,
        isKnown,
        () -> tooMany(exchange.send(call, inquiry, signal).thenApply(inquiry::read), asks));
  }

  /** Decides a call with leases and reservations, or of an admission. */
  private CompletableFuture<Decision> taking(
      EventKind kind,
      Call call,
      List<Ask> asks,
      boolean isSeveral,
      boolean isCounted,
      Signal signal) {
    return ending.abandoning(
        asks,
        isSeveral,
        isCounted,
        taking ->
            decider.decided(
                kind,
                asks,
                false,
                () -> {
                  CompletableFuture<Decision> decision =
                      exchange.send(call, taking, signal).thenApply(taking::read);
                  return isSeveral ? tooMany(decision, asks) : decision;
                }));
  }

  /** Makes a denial of the error of a key that remembers too many ids. */
  private static CompletableFuture<Decision> tooMany(
      CompletableFuture<Decision> decision, List<Ask> asks) {
    return Failures.recovered(
        decision,
        error -> {
          Decision denial = Replies.tooMany(error, asks);
          return denial == null
              ? CompletableFuture.failedFuture(error)
              : CompletableFuture.completedFuture(denial);
        });
  }

  Work<Lease> lease(Item item, CallOptions given) {
    Ask asked = single(ask(item, given));
    if (!asked.isLease()) {
      throw invalid("rule", "a rule made by Rule.lease");
    }
    Ask ask = given.id() == null ? asked.withId(UUID.randomUUID().toString()) : asked;
    Call call = Call.single("CHECK", ask);
    List<Ask> asks = List.of(ask);
    return Work.undoing(
        signal -> {
          long askedAt = loop.nanos();
          return taking(EventKind.LEASE, call, asks, false, false, signal)
              .thenApply(closing::granted)
              .thenApply(
                  d -> ending.guarded(asks, false, () -> holding.lease(this, ask, d, askedAt)))
              .thenApply(closing::kept);
        },
        lease -> lease.releaseAsync());
  }

  Work<Admission> admit(List<Item> items, CallOptions given) {
    String own = Checks.present("options", given).id();
    String id = own == null ? UUID.randomUUID().toString() : own;
    Ask.checkAdmissionId(id);
    List<Ask> asks = asks(items, given.withId(id));
    Call call = Call.several(asks, false);
    return Work.undoing(
        signal -> {
          long askedAt = loop.nanos();
          return taking(EventKind.CHECK, call, asks, true, true, signal)
              .thenApply(closing::granted)
              .thenApply(
                  d ->
                      ending.guarded(
                          asks, true, () -> holding.admission(this, asks, d, id, askedAt)))
              .thenApply(closing::kept);
        },
        admission -> admission.finishAsync());
  }

  Work<Backend> ready() {
    closing.check();
    Call call = Call.probe(keys.key("ready", "ready", null));
    long withinNs = options.patience(true).toNanos();
    return signal ->
        decider
            .noting(List.of(), () -> exchange.sendReady(call, withinNs, signal))
            .thenApply(reply -> exchange.backends.answering());
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
    Ask ask = single(ask(item, given)).withoutLeave();
    Decision row = Checks.present("taken", taken);
    // A call that shadow mode allowed took nothing.
    if (!row.wouldAllow() || row.granted() < 1 || row.source() == Source.ERROR) {
      return;
    }
    Item units = item.rule.of(item.subject).cost(row.granted());
    Work<Decision> refund = settled(EventKind.REFUND, units, given);
    loop.execute(
        () -> {
          if (row.source() == Source.SERVER || !putBack(ask, row)) {
            refund.begin(Signal.NONE);
          }
        });
  }

  /** Returns units that this process granted. Returns false if it cannot. */
  private boolean putBack(Ask ask, Decision row) {
    Reason reason = row.reason();
    if (reason == null) {
      denials.forget(ask.key());
      return stocks.putBack(ask.key(), ask.rule(), prefetchOf(ask));
    }
    denials.forgetCached(ask.key());
    decider.refundLocal(ask.withCost(row.granted(), false), reason);
    return true;
  }
}
