//! The texts of the errors in arguments.

use super::GrammarError;
use crate::algorithms::{Algorithm, for_algorithms};
use std::ffi::CStr;

/// Returns the text as the C string that the server takes.
const fn c_str(text_and_nul: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text_and_nul.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a text needs one NUL, at its end"),
    }
}

macro_rules! integer {
    ($argument:literal, $min:literal) => {
        const {
            c_str(concat!(
                "ERR invalid ",
                $argument,
                ": expected an integer from ",
                $min,
                " to 1000000000000\0"
            ))
        }
    };
}

macro_rules! duration {
    ($argument:literal $(, $more:literal)?) => {
        const {
            c_str(concat!(
                "ERR invalid ", $argument, ": expected a duration from 1ms to 366d, ",
                "such as 60, 0.5, 500ms or 1h", $($more,)? "\0"
            ))
        }
    };
}

macro_rules! name {
    ($argument:literal) => {
        const {
            c_str(concat!(
                "ERR invalid ",
                $argument,
                ": expected 1 to 64 characters of A-Z a-z 0-9 . _ : / -\0"
            ))
        }
    };
}

macro_rules! rule {
    ($syntax:literal) => {
        const { c_str(concat!("ERR wrong number of arguments: expected ", $syntax, "\0")) }
    };
}

macro_rules! zone {
    ($expected:literal) => {
        const {
            c_str(concat!(
                "ERR ",
                $expected,
                " a name of the IANA time zone database, such as UTC or Europe/Berlin\0"
            ))
        }
    };
}

macro_rules! refill {
    ($argument:literal) => {
        const {
            c_str(concat!(
                "ERR invalid ",
                $argument,
                ": ",
                $argument,
                " x period / rate, the time to refill from empty, must not exceed 36525d\0"
            ))
        }
    };
}

/// Joins names: `A, B or C`.
macro_rules! or {
    ($last:literal) => { $last };
    ($first:literal $last:literal) => { concat!($first, " or ", $last) };
    ($first:literal $($rest:literal)+) => { concat!($first, ", ", or!($($rest)+)) };
}

/// Defines the texts that list algorithms, from the rows of the table.
macro_rules! texts_of_algorithms {
    ($(
        $(#[$call:meta])*
        $name:literal $limiter:ident($arguments:literal: $($argument:ident)*)
            $state:ty => $new_state:ty,
    )*) => {
        /// Returns the text for a rule of this algorithm with too few arguments.
        const fn rule_arity(algorithm: Algorithm) -> &'static CStr {
            match algorithm {
                $(Algorithm::$limiter => const {
                    c_str(concat!(
                        "ERR wrong number of arguments: expected ", $name, " ", $arguments, "\0"
                    ))
                },)*
            }
        }

        const ALGORITHM: &CStr = c_str(concat!(
            "ERR invalid algorithm: expected ", or!($($name)* "LEASE" "RESERVE" "USE"), "\0"
        ));
        const ALGORITHM_OF_POLICY: &CStr = c_str(concat!(
            "ERR invalid algorithm: expected ", or!($($name)*), " after DEFAULT\0"
        ));
        const POLICY_RULE: &CStr = c_str(concat!(
            "ERR invalid rule: expected ", or!($($name)*),
            ", optionally after SHADOW, OFF, BLOCK, ENFORCE percent or EX duration\0"
        ));
    };
}
for_algorithms!(texts_of_algorithms);

impl GrammarError {
    /// Returns the text of the error reply; `None` if the server's own text applies.
    pub const fn text(self) -> Option<&'static CStr> {
        Some(match self {
            Self::Arity => return None,
            Self::RuleArity(algorithm) => rule_arity(algorithm),
            Self::TooManyRules => {
                c"ERR too many rules: expected 1 to 16 pairs of a key and a rule"
            }
            Self::Limit => integer!("limit", "1"),
            Self::Burst => integer!("burst", "1"),
            Self::Capacity => integer!("capacity", "1"),
            Self::Rate => integer!("rate", "1"),
            Self::Cost => integer!("cost", "0"),
            Self::Slots => c"ERR invalid slots: expected an integer from 16 to 65536",
            Self::Leave => {
                c"ERR invalid leave: expected an integer from 0 to 1000000000000, or 0% to 100%"
            }
            Self::Window => duration!("window"),
            Self::Period => duration!("period"),
            Self::RateTooHigh => {
                c"ERR invalid rate: rate / period must not exceed 1000000000 per second"
            }
            Self::BurstRefill => refill!("burst"),
            Self::CapacityRefill => refill!("capacity"),
            Self::Attempts => c"ERR invalid attempts: expected an integer from 1 to 1000000",
            Self::Base => duration!("base"),
            Self::Max => duration!("max"),
            Self::Forget => duration!("forget"),
            Self::BaseAboveMax => c"ERR invalid base: must not exceed max",
            Self::MaxNotBelowForget => c"ERR invalid max: must be less than forget",
            Self::Unit => c"ERR invalid unit: expected day, week, month, quarter or year",
            Self::Zone => zone!("invalid zone: expected"),
            Self::StartOfWeek => {
                c"ERR invalid start: expected mon, tue, wed, thu, fri, sat or sun for a week"
            }
            Self::StartOfMonth => {
                c"ERR invalid start: expected an integer from 1 to 31 for a month"
            }
            Self::StartOfYear => c"ERR invalid start: expected an integer from 1 to 12 for a year",
            Self::StartNotHere => c"ERR invalid start: only week, month and year take START",
            Self::LeaseId => c"ERR invalid id: expected 1 to 128 bytes",
            Self::LeaseLimit => c"ERR invalid limit: expected an integer from 1 to 1000000",
            Self::Ttl => duration!("ttl"),
            Self::BanDuration => duration!("duration"),
            Self::LeaseOption => {
                c"ERR invalid option: expected LEAVE n, a holder has one permit"
            }
            Self::LeaseArity => rule!("LEASE id limit ttl"),
            Self::LeaseNotHere => {
                c"ERR invalid algorithm: LEASE has no cost to charge or refund"
            }
            Self::UseNotHere => c"ERR invalid algorithm: USE is not allowed here",
            Self::UsedPolicy => name!("policy"),
            Self::Variant => name!("variant"),
            Self::MissingVariant => {
                c"ERR missing variant: expected FOR followed by a variant of the policy"
            }
            Self::RepeatedFor => c"ERR repeated option: FOR may be given at most twice",
            Self::MissingDefault => {
                c"ERR missing rule: expected DEFAULT followed by an algorithm and its limits"
            }
            Self::OptionOfUse => {
                c"ERR invalid option: expected COST n, PARTIAL, LEAVE n, FOR variant or DEFAULT rule"
            }
            Self::UseArity => rule!("USE policy"),
            Self::AlgorithmOfPolicy => ALGORITHM_OF_POLICY,
            Self::CostOfBackoff => {
                c"ERR invalid option: the policy's rule is BACKOFF, which takes no COST, PARTIAL or LEAVE"
            }
            Self::Option => c"ERR invalid option: expected COST n, PARTIAL or LEAVE n",
            Self::OptionOrAligned => {
                c"ERR invalid option: expected COST n, PARTIAL, LEAVE n or ALIGNED"
            }
            Self::OptionOfQuota => {
                c"ERR invalid option: expected ZONE name, START n, COST n, PARTIAL or LEAVE n"
            }
            Self::OptionOfLog => {
                c"ERR invalid option: expected COST n, PARTIAL, LEAVE n or SLOTS n"
            }
            Self::NoOption => c"ERR invalid option: BACKOFF takes no options",
            Self::RepeatedCost => c"ERR repeated option: COST may be given once",
            Self::RepeatedAligned => c"ERR repeated option: ALIGNED may be given once",
            Self::RepeatedPartial => c"ERR repeated option: PARTIAL may be given once",
            Self::RepeatedLeave => c"ERR repeated option: LEAVE may be given once",
            Self::RepeatedZone => c"ERR repeated option: ZONE may be given once",
            Self::RepeatedStart => c"ERR repeated option: START may be given once",
            Self::RepeatedSlots => c"ERR repeated option: SLOTS may be given once",
            Self::MissingSlots => {
                c"ERR missing slots: expected SLOTS followed by an integer from 16 to 65536"
            }
            Self::MissingZone => zone!("missing zone: expected ZONE followed by"),
            Self::MissingStart => {
                c"ERR missing start: expected START followed by a weekday, a day of the month or a month"
            }
            Self::PartialOfNothing => {
                c"ERR invalid cost: with PARTIAL, expected an integer from 1 to 1000000000000"
            }
            Self::PartialNotHere => {
                c"ERR invalid option: PARTIAL is for RL.PEEK and commands that decide by one rule"
            }
            Self::LeaveNotHere => {
                c"ERR invalid option: LEAVE is for commands that decide a call"
            }
            Self::MissingLeave => {
                c"ERR missing leave: expected LEAVE followed by units or a percentage, such as 20%"
            }
            Self::MissingCost => {
                c"ERR missing cost: expected COST followed by an integer from 0 to 1000000000000"
            }
            Self::Algorithm => ALGORITHM,
            Self::MaxBurst => {
                c"ERR invalid max_burst: expected an integer from 0 to 999999999999"
            }
            Self::CountPerPeriod => integer!("count_per_period", "1"),
            Self::PeriodInSeconds => {
                c"ERR invalid period: expected whole seconds, an integer from 1 to 31622400"
            }
            Self::Quantity => integer!("quantity", "0"),
            Self::CountTooHigh => {
                c"ERR invalid count_per_period: count_per_period / period must not exceed 1000000000 per second"
            }
            Self::MaxBurstRefill => {
                c"ERR invalid max_burst: (max_burst + 1) x period / count_per_period, the time to refill from empty, must not exceed 36525d"
            }
            Self::ReservationId => c"ERR invalid id: expected 1 to 64 bytes",
            Self::NotReservable => {
                c"ERR invalid algorithm: expected FIXED or QUOTA, which allow reservations, or USE"
            }
            Self::PolicyNotReservable => {
                c"ERR invalid policy: expected a rule of FIXED or QUOTA, which allow reservations"
            }
            Self::ReserveNotHere => c"ERR invalid algorithm: RESERVE is not allowed here",
            Self::ReserveArity => rule!("RESERVE id ttl rule"),
            Self::PolicyName => {
                c"ERR invalid policy: expected name or name@variant, each 1 to 64 characters of A-Z a-z 0-9 . _ : / -"
            }
            Self::TooManyNames => c"ERR too many names: expected 1 to 32",
            Self::Pattern => c"ERR invalid pattern: expected at most 256 bytes",
            Self::PolicyRule => POLICY_RULE,
            Self::MissingPolicyRule => {
                c"ERR missing rule: expected an algorithm and its limits, such as GCRA 6 10 60"
            }
            Self::OptionOfPolicy => {
                c"ERR invalid option: a policy's rule takes only ALIGNED after FIXED, SLOTS after SLIDINGLOG, ZONE and START after QUOTA"
            }
            Self::CostOfPolicy => {
                c"ERR invalid option: COST, PARTIAL and LEAVE belong to a call, not to a policy's rule"
            }
            Self::Percent => {
                c"ERR invalid percent: expected ENFORCE followed by an integer from 0 to 100"
            }
            Self::RepeatedMode => {
                c"ERR repeated mode: expected only one of SHADOW, OFF, BLOCK and ENFORCE"
            }
            Self::Ex => duration!("EX"),
            Self::RepeatedEx => c"ERR repeated option: EX may be given once",
            Self::Subcommand => c"ERR invalid subcommand: expected CLOCK",
            Self::ClockAction => {
                c"ERR invalid clock action: expected FREEZE [unix-us], ADVANCE duration or RESUME"
            }
            Self::UnixTime => {
                c"ERR invalid unix-us: expected an integer from 0 to 7258118400000000"
            }
            Self::Duration => duration!("duration", ", with a leading - to move back"),
            Self::TopCount => {
                c"ERR invalid count: expected an integer from 1 to 128, CALLS or RESET"
            }
            Self::OptionOfTop => c"ERR invalid option: expected CALLS",
        })
    }
}
