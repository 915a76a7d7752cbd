//! Policies: named limits, which a call refers to instead of passing them.
//!
//! These modules know no server, read no clock and open no file. Reading order:
//!
//! | module | content |
//! |---|---|
//! | `name`, `definition` | the names of a policy and its variants, and the text of one |
//! | `families` | the policies that belong together |
//! | `table`, `file_set` | all policies and the look-up; those of a file |
//! | `digest` | a number for all settings in force |
//! | `statistics`, `metrics` | the counters of calls; the same for Prometheus |

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
