//! The base of every test of this target: a server of its own, a client that compares raw replies,
//! and the six algorithms that take a cost as data.
//!
//! Environment variables choose what is tested: `SERVER` is the server binary (default
//! `redis-server`), `RL_MODULE` the module (default: built here once, in release mode), and
//! `NEIGHBOUR` another module to load next to it (default: none).

pub mod algorithms;
pub mod client;
pub mod cluster;
pub mod forge;
pub mod fuzz;
pub mod metrics;
pub mod module;
pub mod played;
pub mod poll;
pub mod pump;
pub mod random;
pub mod replicas;
pub mod replication;
pub mod server;
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

/// 2027-01-15 08:00:00 UTC, in microseconds: the instant at which tests freeze the clock. It is a
/// multiple of an hour since the Unix epoch, so windows of an hour and its parts begin here.
pub const BASE_US: i64 = 1_800_000_000_000_000;

/// The time by which a key outlives the real clock while the module's clock is frozen.
pub const FROZEN_MARGIN_MS: i64 = 86_400_000;

/// The wrong-type answer of every deciding command and of PEEK.
pub const WRONGTYPE: &str = "WRONGTYPE the key does not hold a state of this algorithm";

/// Returns the text of an error that lists algorithms or options, from the engine. `errors.rs`
/// compares these texts word for word.
pub fn listing(error: GrammarError) -> &'static str {
    error.text().and_then(|text| text.to_str().ok()).expect("a text")
}
