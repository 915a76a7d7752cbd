//! Naive models of the algorithms, with which property tests compare them.
//!
//! A model keeps exact numbers or a list of events and decides one question only: would this cost
//! be allowed at that time? `reply` derives everything else by repeating that question, so the
//! models share no formula with the limiters. It also tries negative costs: a negative cost is
//! allowed if the debt is not larger than its amount. Times are in microseconds and, like all
//! numbers, `i128`: nothing overflows.
//!
//! Besides the models, this module holds the code shared by property tests, fuzz targets,
//! simulation and soak: the stored `key` that is compared with a model, the `subject` with an
//! algorithm's bounds, and `draw` for random input.

/// Calls the macro `$make` with the subject of each algorithm: a name for tests, the algorithm, and
/// the type that implements [`Subject`].
///
/// Every suite that covers all algorithms uses this list.
#[macro_export]
macro_rules! for_all_subjects {
    ($make:ident) => {
        $make! {
            fixed_window: FixedWindow => $crate::oracle::windows::Fixed,
            sliding_window: SlidingWindow => $crate::oracle::sliding_window::Sliding,
            sliding_log: SlidingLog => $crate::oracle::log::Log,
            token_bucket: TokenBucket => $crate::oracle::buckets::Token,
            leaky_bucket: LeakyBucket => $crate::oracle::buckets::Leaky,
            gcra: Gcra => $crate::oracle::gcra::CellRate,
            backoff: Backoff => $crate::oracle::backoff::Delays,
            calendar_quota: CalendarQuota => $crate::oracle::windows::Quotas,
        }
    };
}

pub mod backoff;
pub mod ban;
pub mod buckets;
pub mod draw;
pub mod gcra;
pub mod key;
pub mod leases;
pub mod log;
pub mod model;
pub mod redis_cell;
pub mod reply;
pub mod reservations;
pub mod rule_set;
pub mod sliding_window;
pub mod subject;
pub mod windows;

pub use crate::oracle::backoff::{Backoff, Delays, delays};
pub use crate::oracle::ban::Banned;
pub use crate::oracle::buckets::{Leaky, LeakyBucket, Token, TokenBucket};
pub use crate::oracle::draw::{CLOCK_MAX_US, DAY_US, Share, Source, Step, UNITS_MAX};
pub use crate::oracle::gcra::{CellRate, Gcra};
pub use crate::oracle::key::{Key, Write};
pub use crate::oracle::leases::{Leases, Seen, lease_rule};
pub use crate::oracle::log::{Log, SlidingLog};
pub use crate::oracle::model::{Limits, Oracle, Unexplained, div_ceil};
pub use crate::oracle::redis_cell::{CellKey, CellLimits};
pub use crate::oracle::reply::{AnyOracle, Reply, Verb, Wrote, act, call, peek};
pub use crate::oracle::reservations::{
    AnyCall, Hold, IDS, Reserved, Reserving, Step as ReservationStep, take_step,
};
pub use crate::oracle::rule_set::{
    AnySubject, Part, Together, TwinOfAny, TwinPart, act_all, call_all, example,
};
pub use crate::oracle::sliding_window::{Sliding, SlidingWindow};
pub use crate::oracle::subject::{Subject, Twin, check_retry};
pub use crate::oracle::windows::{
    CalendarQuota, Fixed, FixedWindow, Quotas, Window, Windows, calendar,
};
