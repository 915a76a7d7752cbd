//! The rules of a limiter, and the types of calls and decisions. This room imports no other.

pub(crate) mod clock;
pub(crate) mod count;
pub(crate) mod counters;
pub(crate) mod decision;
pub(crate) mod durations;
pub(crate) mod errors;
pub(crate) mod event;
pub(crate) mod headers;
pub(crate) mod item;
pub(crate) mod keys;
pub(crate) mod kind;
pub(crate) mod options;
pub(crate) mod problem;
pub(crate) mod rate;
pub(crate) mod rule;
