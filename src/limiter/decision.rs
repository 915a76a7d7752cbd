//! What a limiter answers: a verdict with its numbers, and the state to keep if there is one.

use super::bounds::Limit;
use super::time::{Instant, Span};

/// May it happen now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes. `wait` is how long to hold back before acting: zero for every algorithm but the leaky
    /// bucket, which queues.
    Allowed {
        /// Time until the call's turn.
        wait: Span,
    },
    /// Not now. The same call is allowed after `retry_after` if nobody else calls, and not before:
    /// exact to the microsecond, and rounded up where an instant is finer than that.
    Denied {
        /// Time until the same call is allowed.
        retry_after: Span,
    },
    /// Never: it costs more than the limit.
    Impossible,
}

/// A verdict and what goes with it; the five fields of the reply, in their own types.
///
/// What holds for all six: a cost of 0 only asks, is always allowed and stores nothing; a cost
/// above the limit is impossible, whatever is stored; numbers round to the side that keeps the
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// May it happen now?
    pub verdict: Verdict,
    /// The capacity asked for.
    pub limit: Limit,
    /// How much cost would still be allowed right now, after this decision; rounded down.
    pub remaining: u64,
    /// Time until the subject has its full allowance back if nobody calls, rounded up to the
    /// microsecond; zero when it has it.
    pub reset_after: Span,
}

/// A state to keep, and how long it means anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next<S> {
    /// The state.
    pub state: S,
    /// From this instant on, rounded up to the microsecond, the state decides as if there were none
    /// under the limits that wrote it.
    pub lapses_at: Instant,
    /// How much longer than that its key may live, so that not every call has to extend it.
    pub ttl_slack: Span,
}

/// What a call amounts to. `next` is there when something has to be stored: after every allowed
/// call that costs something, and after a repair. A denial as such carries no state, so it cannot
/// write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<S> {
    /// What to answer.
    pub decision: Decision,
    /// What to store.
    pub next: Option<Next<S>>,
}

impl Verdict {
    /// Allowed, and to be acted on at once.
    pub const ALLOWED: Self = Self::Allowed { wait: Span::ZERO };

    /// Whether the call is allowed.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

impl<S> Next<S> {
    /// A state whose end stays where it is: its key lives exactly as long as it means something.
    pub const fn until(lapses_at: Instant, state: S) -> Self {
        Self { state, lapses_at, ttl_slack: Span::ZERO }
    }

    /// A state whose end moves with every call: its key may live longer by an eighth of `span`, the
    /// longest that such a state can mean something. To extend it each time would cost a tenth of
    /// the call.
    pub const fn drifting(lapses_at: Instant, span: Span, state: S) -> Self {
        Self { state, lapses_at, ttl_slack: span.eighth() }
    }
}

impl<S> Outcome<S> {
    /// The same outcome with its state seen as another type.
    pub fn map<T>(self, convert: impl FnOnce(S) -> T) -> Outcome<T> {
        let next = self.next.map(|next| Next {
            state: convert(next.state),
            lapses_at: next.lapses_at,
            ttl_slack: next.ttl_slack,
        });
        Outcome { decision: self.decision, next }
    }
}
