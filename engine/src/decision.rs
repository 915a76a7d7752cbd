//! What a limiter answers: a verdict with its numbers, and the state to keep if there is one.

use crate::bounds::Limit;
use crate::time::{Instant, Span};

/// May it happen now?
///
/// A charge and a refund happen in any case; theirs says where the subject stands: see
/// [`call`](crate::call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes. `wait` is how long to hold back before acting: zero for every algorithm but the leaky
    /// bucket, which queues.
    Allowed {
        /// Time until the call's turn.
        wait: Span,
    },
    /// Yes, for so many units of a call that takes what is there.
    Granted {
        /// How many: at least 1, at most what was asked for.
        units: u64,
        /// Time until the turn of the first of them.
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
/// What holds for all: a cost of 0 only asks, is always allowed and stores nothing; a cost
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

/// What is to become of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<S> {
    /// It stays as it is.
    Nothing,
    /// It is to hold this.
    Keep(Next<S>),
    /// It is to be deleted: nothing of it is used any more.
    Forget,
}

/// What a call amounts to. Something is written by every allowed call that costs something, by a
/// charge, by a refund that finds something, and after a repair. A denial as such carries no state,
/// so it cannot write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<S> {
    /// What to answer.
    pub decision: Decision,
    /// What to store.
    pub next: Write<S>,
}

impl Verdict {
    /// Allowed, and to be acted on at once.
    pub const ALLOWED: Self = Self::Allowed { wait: Span::ZERO };

    /// Whether the call is allowed.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed { .. } | Self::Granted { .. })
    }

    /// How long an allowed call is to hold back; `None` when it is not allowed.
    pub const fn wait(self) -> Option<Span> {
        match self {
            Self::Allowed { wait } | Self::Granted { wait, .. } => Some(wait),
            Self::Denied { .. } | Self::Impossible => None,
        }
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

impl<S> Write<S> {
    /// The state to keep, if that is what is to be done.
    pub fn kept(&self) -> Option<&Next<S>> {
        match self {
            Self::Keep(next) => Some(next),
            Self::Nothing | Self::Forget => None,
        }
    }

    /// Whether anything is to be done.
    pub const fn is_something(&self) -> bool {
        !matches!(self, Self::Nothing)
    }
}

impl<S> Outcome<S> {
    /// The same outcome with its state seen as another type.
    pub fn map<T>(self, convert: impl FnOnce(S) -> T) -> Outcome<T> {
        let next = match self.next {
            Write::Nothing => Write::Nothing,
            Write::Keep(Next { state, lapses_at, ttl_slack }) => {
                Write::Keep(Next { state: convert(state), lapses_at, ttl_slack })
            }
            Write::Forget => Write::Forget,
        };
        Outcome { decision: self.decision, next }
    }
}
