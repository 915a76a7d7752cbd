//! Naive models of the algorithms, for the property tests to compare with.
//!
//! A model keeps exact numbers or a list of events and can answer one question only: would this
//! cost be allowed at that time? Everything else a limiter answers is found by asking that question
//! again and again (`answer`), also with a cost below 0, which fits once a debt is no larger than
//! that: so no formula of the limiters is repeated here. Times are in
//! microseconds and, like all numbers, `i128`: nothing overflows.
//!
//! Beside the models stands what property tests, fuzz targets, simulation and soak share: the
//! `key` that is compared with a model, the `subject` that names the bounds, and `draw`.

pub mod answer;
pub mod any;
pub mod backoff;
pub mod buckets;
pub mod draw;
pub mod gcra;
pub mod key;
pub mod leases;
pub mod log;
pub mod model;
pub mod quota;
pub mod read;
pub mod redis_cell;
pub mod reservations;
pub mod rule_set;
pub mod subject;
pub mod windows;

pub use crate::oracle::answer::{Answer, Verb, Wrote, act, call, peek};
pub use crate::oracle::any::AnyOracle;
pub use crate::oracle::backoff::{Backoff, delays};
pub use crate::oracle::buckets::{LeakyBucket, TokenBucket};
pub use crate::oracle::draw::{CLOCK_MAX_US, DAY_US, Share, Source, Step, UNITS_MAX};
pub use crate::oracle::gcra::Gcra;
pub use crate::oracle::key::{Key, Write};
pub use crate::oracle::leases::{Leases, Seen, lease_rule};
pub use crate::oracle::log::SlidingLog;
pub use crate::oracle::model::{Limits, Oracle, div_ceil};
pub use crate::oracle::quota::{CalendarQuota, calendar};
pub use crate::oracle::read::Unexplained;
pub use crate::oracle::redis_cell::{CellKey, CellLimits};
pub use crate::oracle::reservations::{
    AnyCall, IDS, Reserved, Reserving, Step as ReservationStep, WindowModel, take_step,
};
pub use crate::oracle::rule_set::{
    AnySubject, Part, Together, TwinOfAny, TwinPart, act_all, call_all,
};
pub use crate::oracle::subject::{
    CellRate, Delays, Fixed, Leaky, Log, Quotas, Sliding, Subject, Token, Twin, check_retry,
};
pub use crate::oracle::windows::{FixedWindow, SlidingWindow};
