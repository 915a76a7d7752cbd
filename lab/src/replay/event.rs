//! A call, as read from one line.

/// A call: everything about a line that a rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time, in microseconds since the Unix epoch. The end of the request if `request_us` is
    /// still to be subtracted.
    pub at_us: u64,
    /// The units that the call takes.
    pub cost: u64,
    /// The number of the key.
    pub key: u32,
    /// The time that the request took, in microseconds.
    pub request_us: u64,
    /// The policy that the call names.
    pub applied: Applied,
    /// Whether the time is only the second.
    pub whole_second: bool,
}

/// The policy of a call: its number, and its effect on the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The number of the policy.
    pub policy: u16,
    /// The effect on the key.
    pub effect: Effect,
}

/// The effect of a policy on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// There is no such policy, or the replay has no policies.
    None,
    /// The rule decides.
    Enforced,
    /// The rule decides, and the call is allowed.
    Shadow,
    /// The call is allowed.
    Off,
    /// The call is denied.
    Blocked,
}

impl Applied {
    /// No policy.
    pub const NONE: Self = Self { policy: 0, effect: Effect::None };
}
