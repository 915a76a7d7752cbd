//! Shared code of the suites that start servers: a server for each test, a client that returns raw
//! replies, and the list of algorithms with a cost and a period.
//!
//! Environment variables choose what is tested: `SERVER` is the server binary (default
//! `redis-server`), `RL_MODULE` the module and `RL_MODULE_FAULTS` the one with fault injection
//! (default: they are built from this repository), and `NEIGHBOUR` another module to load as well
//! (default: none).

pub mod acl;
pub mod algorithms;
pub mod calls;
pub mod client;
pub mod cluster;
pub mod forge;
pub mod fuzz;
pub mod leases;
pub mod memory;
pub mod metrics;
pub mod module;
pub mod played;
pub mod poll;
pub mod pump;
pub mod random;
pub mod replicas;
pub mod replication;
pub mod reservations;
pub mod server;
pub mod settling;
pub mod several;
pub mod statistics;
pub mod traffic;
pub mod uses;

use redis_throttle_engine::grammar::error::GrammarError;

pub use algorithms::{ALGORITHMS, Algorithm};
pub use client::{Client, Reply, integers, play, raw_error, text};
pub use poll::eventually;
pub use pump::{Pump, Tally};
pub use random::Random;
pub use replicas::{replica_of, wait_for_offset};
pub use replication::ReplicationStream;
pub use server::Server;
pub use traffic::random_traffic;

/// 2027-01-15 08:00:00 UTC, in microseconds: the time at which tests freeze the clock. It is a
/// whole number of hours after the Unix epoch, so aligned windows of an hour or a part of it start
/// here.
pub const BASE_US: i64 = 1_800_000_000_000_000;

/// The additional lifetime of a key, by the real clock, while the module's clock is frozen.
pub const FROZEN_MARGIN_MS: i64 = 86_400_000;

/// The error of PEEK, and of every command that decides, for a key that is not a state of the
/// algorithm.
pub const WRONGTYPE: &str = "WRONGTYPE the key does not hold a state of this algorithm";

/// Returns the engine's text of an error that lists algorithms or options. `errors.rs` compares
/// these texts word for word.
pub fn listing(error: GrammarError) -> &'static str {
    error.text().and_then(|text| text.to_str().ok()).expect("a text")
}

/// Parses an instant of UTC, such as `2026-03-28T23:30`, to microseconds since the epoch.
pub fn utc(text: &str) -> i64 {
    let parsed = format!("{text}Z").parse::<jiff::Timestamp>();
    parsed.unwrap_or_else(|error| panic!("{text}: {error}")).as_microsecond()
}
