//! Policies: limits that a call names instead of carrying them.
//!
//! Nothing here knows a server, reads a clock or opens a file. Reading order:
//!
//! | module | content |
//! |---|---|
//! | `name`, `definition` | the names of a policy and its variants, and the text of one |
//! | `families` | which policies belong together |
//! | `table`, `file_set` | all policies and the look-up; those of a file |
//! | `digest` | all that apply, as one number |
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
