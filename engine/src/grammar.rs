//! The only argument parser: byte slices in, a request or a static error text out.
//!
//! Numbers are plain digits: no sign, no space, no exponent.

pub mod ban;
pub mod clock;
pub mod error;
pub mod lease;
pub mod name;
pub mod number;
pub mod options;
pub mod packed;
pub mod policy;
pub mod policy_file;
pub mod quota;
pub mod redis_cell;
pub mod redis_gcra;
pub mod request;
pub mod reservation;
pub mod rule;
pub mod rule_text;
pub mod sliding_log;
pub mod top;
pub mod usage;

#[cfg(test)]
pub(crate) mod tests;
