//! Compares the function library, and the script that is generated from it, with the module: the
//! same replies, error texts, stored bytes and expiry.
//!
//! ```text
//! cargo test --locked --test functions
//! ```
//!
//! `RL_DIFFERENTIAL_CALLS` makes the comparing runs longer, and `FUZZ_SEED` repeats one. `SERVER`
//! and `RL_MODULE` have the same meaning as in the end-to-end suite.

#[path = "functions/clock.rs"]
mod clock;
#[path = "functions/differential.rs"]
mod differential;
#[path = "functions/library.rs"]
mod library;
#[path = "functions/moving.rs"]
mod moving;
#[path = "functions/page.rs"]
mod page;
#[path = "functions/refusals.rs"]
mod refusals;
#[path = "functions/rights.rs"]
mod rights;
#[path = "functions/schedule.rs"]
mod schedule;
#[path = "functions/servers.rs"]
mod servers;
#[path = "functions/steps.rs"]
mod steps;
#[path = "functions/words.rs"]
mod words;
