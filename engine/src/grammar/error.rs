//! The errors in arguments. Each text is defined here once, names the argument and the accepted
//! values, and never echoes a client's bytes.

use crate::algorithms::Algorithm;

mod text;

/// An error in the arguments of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrammarError {
    /// Too few or too many arguments; the server has its own text for that.
    Arity,
    /// Too few words in a rule that is passed as one argument.
    RuleArity(Algorithm),
    /// More rules than a call may have.
    TooManyRules,
    /// An invalid limit.
    Limit,
    /// An invalid burst.
    Burst,
    /// An invalid capacity.
    Capacity,
    /// An invalid rate.
    Rate,
    /// An invalid cost.
    Cost,
    /// An invalid number of slots.
    Slots,
    /// Invalid units to leave.
    Leave,
    /// An invalid window.
    Window,
    /// An invalid period.
    Period,
    /// Too many units per second.
    RateTooHigh,
    /// The burst takes too long to refill.
    BurstRefill,
    /// The capacity takes too long to refill.
    CapacityRefill,
    /// An invalid number of free attempts.
    Attempts,
    /// An invalid shortest delay.
    Base,
    /// An invalid longest delay.
    Max,
    /// An invalid time after which attempts are forgotten.
    Forget,
    /// The shortest delay is above the longest.
    BaseAboveMax,
    /// Attempts would be forgotten before the longest delay ends.
    MaxNotBelowForget,
    /// An invalid calendar unit.
    Unit,
    /// An invalid time zone.
    Zone,
    /// An invalid day for the start of a week.
    StartOfWeek,
    /// An invalid day for the start of a month.
    StartOfMonth,
    /// An invalid month for the start of a year.
    StartOfYear,
    /// `START` for a day or a quarter, whose starts are fixed.
    StartNotHere,
    /// An invalid id of a holder.
    LeaseId,
    /// An invalid number of holders.
    LeaseLimit,
    /// An invalid ttl of a lease or a reservation.
    Ttl,
    /// An invalid length of a ban.
    BanDuration,
    /// An option after `LEASE` other than `LEAVE`.
    LeaseOption,
    /// Too few words in a lease that is passed as one argument.
    LeaseArity,
    /// `LEASE` in a charge or a refund.
    LeaseNotHere,
    /// `USE` where no policy can be named.
    UseNotHere,
    /// An invalid name of a policy to use.
    UsedPolicy,
    /// An invalid variant of a policy.
    Variant,
    /// `FOR` without a variant.
    MissingVariant,
    /// `FOR` three times.
    RepeatedFor,
    /// `DEFAULT` without a rule.
    MissingDefault,
    /// An invalid option of `USE`.
    OptionOfUse,
    /// Too few words in a use of a policy that is passed as one argument.
    UseArity,
    /// An invalid algorithm for a policy.
    AlgorithmOfPolicy,
    /// An option of a call with a policy whose rule is `BACKOFF`.
    CostOfBackoff,
    /// An invalid option of this command.
    Option,
    /// An invalid option of `FIXED`.
    OptionOrAligned,
    /// An invalid option of `QUOTA`.
    OptionOfQuota,
    /// An invalid option of `SLIDINGLOG`.
    OptionOfLog,
    /// An option after `BACKOFF`, which has none.
    NoOption,
    /// `COST` twice.
    RepeatedCost,
    /// `ALIGNED` twice.
    RepeatedAligned,
    /// `PARTIAL` twice.
    RepeatedPartial,
    /// `LEAVE` twice.
    RepeatedLeave,
    /// `ZONE` twice.
    RepeatedZone,
    /// `START` twice.
    RepeatedStart,
    /// `SLOTS` twice.
    RepeatedSlots,
    /// `SLOTS` without a number.
    MissingSlots,
    /// `ZONE` without a name.
    MissingZone,
    /// `START` without a value.
    MissingStart,
    /// `COST` without a number.
    MissingCost,
    /// `LEAVE` without a number.
    MissingLeave,
    /// `COST 0 PARTIAL`.
    PartialOfNothing,
    /// `PARTIAL` in a command that does not decide by one rule.
    PartialNotHere,
    /// `LEAVE` in a command that settles an earlier decision.
    LeaveNotHere,
    /// An invalid name of an algorithm.
    Algorithm,
    /// An invalid burst of redis-cell, which does not count the call itself.
    MaxBurst,
    /// An invalid number of calls per period, of redis-cell.
    CountPerPeriod,
    /// An invalid period of redis-cell, in whole seconds.
    PeriodInSeconds,
    /// An invalid quantity of redis-cell.
    Quantity,
    /// Too many calls per second, of redis-cell.
    CountTooHigh,
    /// The burst takes too long to refill, of redis-cell.
    MaxBurstRefill,
    /// An invalid id of a reservation.
    ReservationId,
    /// An algorithm that does not support reservations.
    NotReservable,
    /// A policy whose rule does not support reservations.
    PolicyNotReservable,
    /// `RESERVE` where no reservation can be made.
    ReserveNotHere,
    /// Too few words in a reservation that is passed as one argument.
    ReserveArity,
    /// An invalid name of a policy or variant.
    PolicyName,
    /// More names than a call may have.
    TooManyNames,
    /// An invalid pattern of names.
    Pattern,
    /// A word that is neither a mode nor an algorithm of a policy.
    PolicyRule,
    /// A policy without a rule.
    MissingPolicyRule,
    /// An invalid option in the rule of a policy.
    OptionOfPolicy,
    /// `COST`, `PARTIAL` or `LEAVE` in the rule of a policy.
    CostOfPolicy,
    /// An invalid percentage.
    Percent,
    /// A second mode.
    RepeatedMode,
    /// An invalid lifetime of a policy.
    Ex,
    /// `EX` twice.
    RepeatedEx,
    /// An unknown subcommand of `RL.DEBUG`.
    Subcommand,
    /// `RL.DEBUG CLOCK` with an unknown action.
    ClockAction,
    /// An invalid time to freeze the clock at.
    UnixTime,
    /// An invalid duration to move the clock by.
    Duration,
    /// An invalid number of rows of `RL.TOP`.
    TopCount,
    /// An invalid option of `RL.TOP`.
    OptionOfTop,
}
