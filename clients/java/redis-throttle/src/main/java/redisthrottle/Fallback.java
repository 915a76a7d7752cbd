package redisthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import redisthrottle.Event.EventKind;

/** Decides calls, also without a final reply: by a known denial, or by their {@link OnError}. */
final class Fallback {
  private final Events events;
  private final Loop loop;
  private final Options options;
  private final Local local;
  private final Denials denials;

  Fallback(Loop loop, Options options, Events events, Denials denials) {
    this.loop = loop;
    this.options = options;
    this.events = events;
    this.local = new Local(loop);
    this.denials = denials;
  }

  /**
   * Decides a call. Without a final reply a known denial decides, and else {@link OnError}.
   *
   * @param isKnown true if denials of the call are remembered
   */
  CompletableFuture<Decision> decided(
      EventKind kind,
      List<Keyed> all,
      boolean isKnown,
      Supplier<CompletableFuture<Decision>> decide) {
    long calledAt = loop.nanos();
    return decide
        .get()
        .handle(
            (decision, error) ->
                events.counted(
                    kind,
                    error == null
                        ? decision
                        : without(
                            all, Errors.cause(error), isKnown, kind == EventKind.PEEK, calledAt),
                    all,
                    calledAt));
  }

  OnError onErrorOf(Definition rule) {
    OnError own = rule.choices.onError();
    return own == null ? options.onError : own;
  }

  private Decision without(
      List<Keyed> all, Throwable error, boolean isKnown, boolean isPeek, long calledAt) {
    if (!(error instanceof UnavailableException unavailable)) {
      throw Errors.classified(events.noteRejection(error, all, calledAt));
    }
    Decision denied = isKnown ? denials.known.denial(all, unavailable) : null;
    return denied == null ? withoutReply(all, unavailable, isKnown, isPeek) : denied;
  }

  /**
   * Returns what decides a rule in this process; null if it has no state here. A plain rule of an
   * overloaded call has one, also next to leases and reservations, which have none.
   *
   * @param isKnown true if denials of the call are remembered
   */
  private Local.@Nullable Share shareOf(Keyed keyed, Reason reason, boolean isKnown) {
    OnError onError = onErrorOf(keyed.definition());
    if (onError == OnError.LOCAL) {
      Algorithm local = Checks.present("onError", keyed.definition().local);
      return new Local.Share(keyed, local, false);
    }
    boolean isOverloaded = reason == Reason.OVERLOADED;
    if (onError == OnError.DENY || keyed.isHeld() || !isKnown && !isOverloaded) {
      return null;
    }
    Denials.Known denied = denials.known.over(keyed);
    Algorithm whole = denied != null || isOverloaded ? keyed.definition().whole() : null;
    if (whole == null) {
      return null;
    }
    Local.Share share = new Local.Share(keyed, whole, true);
    if (denied != null) {
      denied.begin(local, share);
    }
    return share;
  }

  /**
   * Decides each rule by its own {@link OnError}. The strictest decides the call. If a rule denies,
   * no local rule takes anything.
   */
  private Decision withoutReply(
      List<Keyed> all, UnavailableException unavailable, boolean isKnown, boolean isPeek) {
    List<OnError> onErrors = new ArrayList<>();
    List<Local.Share> shares = new ArrayList<>();
    for (Keyed keyed : all) {
      Local.Share share = shareOf(keyed, unavailable.reason(), isKnown);
      onErrors.add(share == null ? onErrorOf(keyed.definition()) : OnError.LOCAL);
      if (share != null) {
        shares.add(share);
      }
    }
    OnError chosen = OnError.strictest(onErrors);
    List<Decision> here = local.decide(shares, unavailable, chosen == OnError.DENY, isPeek);
    List<Decision> rows = new ArrayList<>();
    List<Decision> bound = new ArrayList<>();
    List<Long> costs = new ArrayList<>();
    List<Integer> places = new ArrayList<>();
    int next = 0;
    for (int at = 0; at < all.size(); at++) {
      OnError onError = onErrors.get(at);
      Keyed keyed = all.get(at);
      rows.add(
          onError == OnError.LOCAL ? here.get(next++) : withoutState(keyed, onError, unavailable));
      if (onError == chosen) {
        bound.add(rows.get(at));
        costs.add(keyed.cost());
        places.add(at);
      }
    }
    if (all.size() == 1) {
      return rows.get(0);
    }
    Decision whole = Draft.combined(bound, costs);
    return Draft.of(whole).rows(rows, places.get(whole.deciding())).done();
  }

  /** Returns the decision on a rule that has no state in this process. */
  private Decision withoutState(Keyed keyed, OnError onError, UnavailableException unavailable) {
    boolean isAllowed = onError == OnError.ALLOW;
    Duration after = isAllowed ? Duration.ZERO : options.breakerPause;
    Rule rule = keyed.rule();
    Decision plain =
        Draft.decision(rule, isAllowed, rule.limit(), 0, 0, 0, 0, Source.ERROR, unavailable);
    return Draft.of(plain).retryAfter(after).would(isAllowed, after).done();
  }

  /** Gives units back that this process granted without a final reply, for a reason. */
  void refundLocal(Keyed keyed, Reason reason) {
    Local.Share share = shareOf(keyed, reason, true);
    if (share != null) {
      local.add(share, -keyed.cost());
    }
  }
}
