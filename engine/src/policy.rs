//! Policies: named limits, which a call refers to instead of passing them.
//!
//! These modules do not depend on a server, read no clock and open no file. Reading order:
//!
//! | module | content |
//! |---|---|
//! | `name`, `definition` | the names of policies and variants; the rule and mode of one |
//! | `families` | a policy and its variants, which have one algorithm |
//! | `table`, `file_set` | all policies and the look-up; those of a file |
//! | `digest` | one number for all settings in force |
//! | `statistics`, `metrics` | the counters of calls, and their output for Prometheus |

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
