package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/** Makes the decisions of a limiter: counts and reports them, and decides without an answer. */
final class Decider {
  final Hooks hooks;
  private final Exchange exchange;
  private final Loop loop;
  private final Options options;
  private final LocalLimiter local;
  private final KnownDenials known;
  private final ErrorLog log;
  private final AtomicLong allowed = new AtomicLong();
  private final AtomicLong denied = new AtomicLong();
  private final AtomicLong degraded = new AtomicLong();
  private final AtomicLong fromHere = new AtomicLong();
  private final AtomicLong rejected = new AtomicLong();
  private final AtomicLong unsettled = new AtomicLong();

  Decider(Exchange exchange, Keys keys, KnownDenials known) {
    this.exchange = exchange;
    this.loop = exchange.loop;
    this.options = exchange.options;
    this.local = new LocalLimiter(loop);
    this.known = known;
    this.log = new ErrorLog(loop, options.isLogging);
    this.hooks = new Hooks(keys, loop);
    if (options.onDecision != null) {
      hooks.add(options.onDecision);
    }
  }

  Counters counters() {
    return new Counters(
        allowed.get(),
        denied.get(),
        degraded.get(),
        fromHere.get(),
        rejected.get(),
        unsettled.get());
  }

  void countUnsettled() {
    unsettled.incrementAndGet();
  }

  /** Sends a call that {@link OnError} does not decide. Counts a rejection. */
  CompletableFuture<@Nullable Object> answer(Call call, Signal signal, List<Ask> asks) {
    return noting(asks, () -> exchange.send(call, Turn.NONE, signal));
  }

  /** Counts the rejection of a call. */
  CompletableFuture<@Nullable Object> noting(
      List<Ask> asks, Supplier<CompletableFuture<@Nullable Object>> send) {
    long askedAt = loop.nanos();
    return Failures.recovered(
        send.get(), error -> CompletableFuture.failedFuture(noteRejection(error, asks, askedAt)));
  }

  /**
   * Decides a call. Without an answer a known denial decides, and else {@link OnError}.
   *
   * @param isKnown true if denials of the call are remembered
   */
  CompletableFuture<Decision> decided(
      EventKind kind,
      List<Ask> asks,
      boolean isKnown,
      Supplier<CompletableFuture<Decision>> decide) {
    long askedAt = loop.nanos();
    return decide
        .get()
        .handle(
            (decision, error) ->
                counted(
                    kind,
                    error == null
                        ? decision
                        : without(
                            asks, Failures.cause(error), isKnown, kind == EventKind.PEEK, askedAt),
                    asks,
                    askedAt));
  }

  /** Counts and reports a decision. */
  Decision counted(EventKind kind, Decision decision, List<Ask> asks, long askedAt) {
    if (kind != EventKind.PEEK) {
      (decision.allowed() ? allowed : denied).incrementAndGet();
      if (decision.degraded()) {
        degraded.incrementAndGet();
      } else if (decision.source() == Source.LOCAL) {
        fromHere.incrementAndGet();
      }
    }
    if (decision.error() != null) {
      log.add(decision.error().reason());
    }
    hooks.tell(kind, decision, null, asks, askedAt);
    return decision;
  }

  /** Logs what is not logged yet. */
  void close() {
    log.close();
  }

  /**
   * Counts and reports the error if the server rejected the command. Returns the error, which then
   * names the rules.
   */
  Throwable noteRejection(Throwable error, List<Ask> asks, long askedAt) {
    if (!(error instanceof CommandRejectedException rejection)) {
      return error;
    }
    CommandRejectedException named = rejection.naming(asks);
    rejected.incrementAndGet();
    hooks.tell(EventKind.REJECTED, null, named, asks, askedAt);
    return named;
  }

  OnError onErrorOf(BaseRule rule) {
    OnError own = rule.definition.onError();
    return own == null ? options.onError : own;
  }

  private Decision without(
      List<Ask> asks, Throwable error, boolean isKnown, boolean isPeek, long askedAt) {
    if (!(error instanceof UnavailableException away)) {
      throw Failures.classified(noteRejection(error, asks, askedAt));
    }
    Decision denied = isKnown ? known.denial(asks, away) : null;
    return denied == null ? withoutAnswer(asks, away, isKnown, isPeek) : denied;
  }

  /**
   * Returns what decides a rule in this process; null if it has no state here. A plain rule of an
   * overloaded call has one, also next to leases and reservations, which have none.
   *
   * @param isKnown true if denials of the call are remembered
   */
  private LocalLimiter.@Nullable Share shareOf(Ask ask, Reason reason, boolean isKnown) {
    OnError onError = onErrorOf(ask.rule());
    if (onError == OnError.LOCAL) {
      Algorithm local = Checks.present("onError", ask.rule().local);
      return new LocalLimiter.Share(ask, local, false);
    }
    boolean isOverloaded = reason == Reason.OVERLOADED;
    if (onError == OnError.DENY || ask.isHeld() || !isKnown && !isOverloaded) {
      return null;
    }
    KnownDenials.Known denied = known.over(ask);
    Algorithm whole = denied != null || isOverloaded ? ask.rule().whole() : null;
    if (whole == null) {
      return null;
    }
    LocalLimiter.Share share = new LocalLimiter.Share(ask, whole, true);
    if (denied != null) {
      denied.begin(local, share);
    }
    return share;
  }

  /**
   * Decides each rule by its own {@link OnError}. The strictest decides the call. If a rule denies,
   * no local rule takes anything.
   */
  private Decision withoutAnswer(
      List<Ask> asks, UnavailableException away, boolean isKnown, boolean isPeek) {
    List<OnError> onErrors = new ArrayList<>();
    List<LocalLimiter.Share> shares = new ArrayList<>();
    for (Ask ask : asks) {
      LocalLimiter.Share share = shareOf(ask, away.reason(), isKnown);
      onErrors.add(share == null ? onErrorOf(ask.rule()) : OnError.LOCAL);
      if (share != null) {
        shares.add(share);
      }
    }
    OnError chosen = OnError.strictest(onErrors);
    List<Decision> here = decideHere(shares, away, chosen == OnError.DENY, isPeek);
    List<Decision> rows = new ArrayList<>();
    List<Decision> bound = new ArrayList<>();
    List<Long> costs = new ArrayList<>();
    List<Integer> places = new ArrayList<>();
    int next = 0;
    for (int at = 0; at < asks.size(); at++) {
      OnError onError = onErrors.get(at);
      Ask ask = asks.get(at);
      rows.add(onError == OnError.LOCAL ? here.get(next++) : withoutState(ask, onError, away));
      if (onError == chosen) {
        bound.add(rows.get(at));
        costs.add(ask.cost());
        places.add(at);
      }
    }
    if (asks.size() == 1) {
      return rows.get(0);
    }
    Decision whole = Decision.combined(bound, costs);
    return whole.withRows(List.copyOf(rows), places.get(whole.deciding()));
  }

  /** Decides the rules of a call that this process decides. It takes nothing if it is denied. */
  private List<Decision> decideHere(
      List<LocalLimiter.Share> shares,
      UnavailableException away,
      boolean isDenied,
      boolean isPeek) {
    List<Decision> here = new ArrayList<>(local.decide(shares, away, isPeek || isDenied));
    boolean denies = isDenied || here.stream().anyMatch(row -> !row.allowed());
    for (int at = 0; denies && at < here.size(); at++) {
      if (here.get(at).allowed()) {
        here.set(at, local.decide(List.of(shares.get(at).untouched()), away, true).get(0));
      }
    }
    return here;
  }

  /** Returns the decision on a rule that has no state in this process. */
  private Decision withoutState(Ask ask, OnError onError, UnavailableException away) {
    boolean isAllowed = onError == OnError.ALLOW;
    Duration after = isAllowed ? Duration.ZERO : options.breakerPause;
    return Decision.of(ask.rule(), isAllowed, ask.rule().limit(), 0, 0, 0, 0, Source.ERROR, away)
        .withRetryAfter(after)
        .withWould(isAllowed, after);
  }

  /** Gives units back that this process granted without an answer, for a reason. */
  void refundLocal(Ask ask, Reason reason) {
    LocalLimiter.Share share = shareOf(ask, reason, true);
    if (share != null) {
      local.refund(share);
    }
  }
}
