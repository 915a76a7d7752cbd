//! Policies: limits that a call names instead of carrying them.
//!
//! Nothing here knows a server, reads a clock or opens a file. Reading order: `name` (what a policy
//! and its variants are called), `setting` (what is said of one), `families` (which of them belong
//! together), `table` (all of them, and which one a call gets), `bases` (those of a file), `digest`
//! (what applies as one number), `statistics` (what became of the calls), `metrics` (the same for
//! Prometheus).

mod bases;
mod digest;
mod duration;
mod families;
pub mod metrics;
mod name;
mod pattern;
mod setting;
pub mod statistics;
mod table;

#[cfg(test)]
mod tests;

pub use bases::Bases;
pub use duration::duration_text;
pub use families::Refusal;
pub use name::{FullName, Name};
pub use pattern::Pattern;
pub use setting::{Enforcement, Setting, Stance};
pub use statistics::{Counted, Ending, Statistics};
pub use table::{Change, Found, Policies};
