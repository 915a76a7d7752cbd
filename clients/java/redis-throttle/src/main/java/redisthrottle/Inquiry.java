package redisthrottle;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** A check or a peek under way: what is known of its keys, and what its reply shows. */
final class Inquiry extends Turn {
  private final Denials denials;
  private final Denials.Moment moment;
  private final List<Keyed> all;
  private final @Nullable Words cached;
  private final boolean isSeveral;
  private final boolean isKnown;

  /**
   * Begins an inquiry.
   *
   * @param cached the call whose denial is cached; null for none
   * @param isSeveral true for a call with several rules
   * @param isKnown true if its denials are remembered
   */
  Inquiry(
      Denials denials,
      List<Keyed> all,
      @Nullable Words cached,
      boolean isSeveral,
      boolean isKnown) {
    this.denials = denials;
    this.moment = denials.nextMoment();
    this.all = all;
    this.cached = cached;
    this.isSeveral = isSeveral;
    this.isKnown = isKnown;
  }

  /** Returns the decision of a reply, or the known denial that came instead. */
  Decision read(@Nullable Object reply) {
    if (reply instanceof Decision denied) {
      return denied;
    }
    Decision d = isSeveral ? Replies.several(reply, all) : Replies.decision(reply, all.get(0));
    if (isKnown) {
      denials.note(all, cached, d, moment);
    }
    return d;
  }

  @Override
  @Nullable Decision known() {
    return isKnown ? denials.known.denial(all, null) : null;
  }

  @Override
  void late(@Nullable Object reply, @Nullable RuntimeException error) {
    if (error == null) {
      try {
        read(reply);
      } catch (CommandRejectedException e) {
        // It is no decision, and its caller has gone.
        return;
      }
    }
  }
}
