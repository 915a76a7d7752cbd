//! Policies: limits that a call names instead of carrying them.
//!
//! Nothing here knows a server, reads a clock or opens a file. Reading order: `name` (what a policy
//! and its variants are called), `definition` (what is said of one), `families` (which of them belong
//! together), `table` (all of them, and which one a call gets), `file_set` (those of a file), `digest`
//! (what applies as one number), `statistics` (what became of the calls), `metrics` (the same for
//! Prometheus).

pub mod definition;
pub mod digest;
pub mod duration;
pub mod families;
pub mod file_set;
pub mod metrics;
pub mod name;
pub mod pattern;
pub mod statistics;
pub mod table;

#[cfg(test)]
mod tests;
