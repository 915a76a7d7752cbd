//! The result of a call: a verdict with its numbers, and the state to store if there is one.

use crate::bounds::Limit;
use crate::time::{Instant, Span};

/// The verdict on a call.
///
/// A charge and a refund always take effect. Their verdict reports if the key is in debt: see
/// [`call`](crate::call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call is allowed. The caller should wait for `wait` before it acts. The wait is zero for
    /// every algorithm except the leaky bucket, which queues calls.
    Allowed {
        /// The time until the units may be used.
        wait: Span,
    },
    /// The call is granted a part of its cost: the units left.
    Granted {
        /// The units granted: at least 1, at most the cost.
        units: u64,
        /// The time until the first unit may be used.
        wait: Span,
    },
    /// The call is denied. The same call is allowed after `retry_after` if no other call comes, and
    /// not earlier. The time is exact to the microsecond, rounded up from nanoseconds.
    Denied {
        /// The time until the same call is allowed.
        retry_after: Span,
    },
    /// The call can never be allowed: its cost exceeds the limit.
    Impossible,
    /// The call is denied because the key is banned, even if the rule is in shadow mode.
    Banned {
        /// The time until the ban ends; `None` if the call can never be allowed.
        retry_after: Option<Span>,
    },
}

/// A verdict and its numbers, from which the five fields of the reply are built.
///
/// For all algorithms, unless the key is banned: a cost of 0 is always allowed and stores nothing;
/// a cost above the limit is impossible, whatever is stored; numbers are rounded in favour of the
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The rule's limit or capacity.
    pub limit: Limit,
    /// The cost that would still be allowed right after this decision, rounded down.
    pub remaining: u64,
    /// The time until the key has its full allowance back if no call comes, rounded up to the
    /// microsecond; zero if nothing is used.
    pub reset_after: Span,
}

/// A state to store, and its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next<S> {
    /// The state.
    pub state: S,
    /// The instant of expiry, rounded up to the microsecond. From then on, the rule that wrote the
    /// state counts it as missing.
    pub expires_at: Instant,
    /// The time by which the key may outlive the state, so that not every call has to extend its
    /// expiry.
    pub ttl_slack: Span,
}

/// The write that a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWrite<S> {
    /// The key stays as it is.
    Nothing,
    /// This state is written to the key, with its expiry.
    Keep(Next<S>),
    /// The key is deleted, since nothing is used any more.
    Forget,
}

/// The result of a call. These calls write: an allowed call with a cost, a charge, a refund that
/// gives something back, any call that repairs the state, and a step of a reservation. A denial
/// without a repair carries no state, so it cannot write; a reservation in shadow mode can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<S> {
    /// The reply.
    pub decision: Decision,
    /// The write.
    pub next: StateWrite<S>,
}

impl Verdict {
    /// The verdict of an allowed call that need not wait.
    pub const ALLOWED: Self = Self::Allowed { wait: Span::ZERO };

    /// Returns true if the call is allowed.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed { .. } | Self::Granted { .. })
    }

    /// Returns true if a ban of the key denies the call.
    pub const fn is_banned(self) -> bool {
        matches!(self, Self::Banned { .. })
    }

    /// Returns the time that an allowed call has to wait; `None` if it is not allowed.
    pub const fn wait(self) -> Option<Span> {
        match self {
            Self::Allowed { wait } | Self::Granted { wait, .. } => Some(wait),
            Self::Denied { .. } | Self::Impossible | Self::Banned { .. } => None,
        }
    }
}

impl Decision {
    /// Returns the five integers of a reply: `allowed limit remaining retry_after_ms
    /// reset_after_ms`. `retry_after_ms` is -1 if the call can never be allowed.
    #[inline(always)]
    pub fn integers(&self) -> [i64; 5] {
        let (allowed, retry_after_ms) = match self.verdict {
            Verdict::Allowed { wait } => (1, ms(wait)),
            Verdict::Granted { units, wait } => (integer(units), ms(wait)),
            Verdict::Denied { retry_after } => (0, ms(retry_after)),
            Verdict::Impossible => (0, Self::NEVER),
            Verdict::Banned { retry_after } => (0, retry_after.map_or(Self::NEVER, ms)),
        };
        [
            allowed,
            integer(self.limit.units()),
            integer(self.remaining),
            retry_after_ms,
            ms(self.reset_after),
        ]
    }

    /// `retry_after_ms` of a call that can never be allowed.
    pub const NEVER: i64 = -1;
}

#[inline]
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[inline]
fn ms(span: Span) -> i64 {
    integer(span.as_ms_ceil())
}

impl<S> Next<S> {
    /// Makes a state with a fixed expiry: its key lives exactly until then.
    pub const fn until(expires_at: Instant, state: S) -> Self {
        Self { state, expires_at, ttl_slack: Span::ZERO }
    }

    /// Makes a state whose expiry moves with every call. `span` is the longest time for which such
    /// a state counts. The key may outlive the state by an eighth of `span`, because extending the
    /// key's expiry in every call would take a tenth of the call's time.
    pub const fn drifting(expires_at: Instant, span: Span, state: S) -> Self {
        Self { state, expires_at, ttl_slack: span.eighth() }
    }
}

impl<S> StateWrite<S> {
    /// Returns the state to store, if there is one.
    pub fn kept(&self) -> Option<&Next<S>> {
        match self {
            Self::Keep(next) => Some(next),
            Self::Nothing | Self::Forget => None,
        }
    }

    /// Returns true if the key changes.
    pub const fn is_something(&self) -> bool {
        !matches!(self, Self::Nothing)
    }
}

impl<S> Outcome<S> {
    /// Returns the same outcome with its state converted to another type.
    pub fn map<T>(self, convert: impl FnOnce(S) -> T) -> Outcome<T> {
        let next = match self.next {
            StateWrite::Nothing => StateWrite::Nothing,
            StateWrite::Keep(Next { state, expires_at, ttl_slack }) => {
                StateWrite::Keep(Next { state: convert(state), expires_at, ttl_slack })
            }
            StateWrite::Forget => StateWrite::Forget,
        };
        Outcome { decision: self.decision, next }
    }
}
