#![doc = include_str!("../README.md")]

mod address;
mod argument;
mod attempt;
mod backend;
mod breaker;
mod call;
#[cfg(test)]
mod cases;
mod clock;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod counters;
mod decision;
mod denial_cache;
mod duration;
mod error;
mod exchange;
mod fallback;
mod http;
mod key;
mod kind;
mod lease;
mod limiter;
mod link;
mod local;
mod node;
mod on_error;
mod options;
mod prefetch;
mod protocol;
mod rule;
mod server;
mod several;
mod taken;
mod telling;
#[cfg(feature = "testing")]
pub mod testing;
mod wait;
mod with_leases;

pub use redis;

pub use address::ClientAddress;
pub use backend::Backend;
pub use call::Call;
#[cfg(feature = "cluster")]
pub use cluster::Cluster;
pub use connection::{Command, Connection, Dial, Dialling, Reply};
pub use counters::Counters;
pub use decision::{Decision, Reason, Source};
pub use duration::Span;
pub use error::Error;
pub use http::{HeaderStyle, Problem};
pub use kind::{Kind, QuotaUnit};
pub use lease::Lease;
pub use limiter::Limiter;
pub use on_error::OnError;
pub use options::{HashTag, Options};
pub use rule::Rule;
pub use server::Server;
pub use telling::{DecisionEvent, EventKind};
