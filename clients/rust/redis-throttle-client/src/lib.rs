#![doc = include_str!("../README.md")]

mod address;
mod admission;
mod admit;
mod argument;
#[cfg(feature = "cluster")]
mod attempt;
mod backend;
mod breaker;
mod budget;
mod calls;
#[cfg(test)]
mod cases;
mod checked;
mod clock;
mod closing;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod count;
mod counters;
mod decision;
mod denial_cache;
mod duration;
mod ending;
mod error;
mod event_fields;
mod exchange;
mod fallback;
mod forgotten;
mod hold;
mod http;
mod item;
mod json_log;
mod key;
mod kind;
mod known_denials;
mod lease;
mod limiter;
mod link;
mod local;
mod node;
mod on_error;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
mod options;
mod prefetch;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod protocol;
mod rate;
mod reply;
mod rule;
mod run_clock;
mod server;
mod several;
mod taken;
mod telling;
#[cfg(feature = "testing")]
pub mod testing;
mod unanswered;
mod wait;

pub use redis;

pub use address::ClientAddress;
pub use admission::{Admission, Reservation, RuleOrItem};
pub use backend::Backend;
#[doc(hidden)]
pub use checked::Checked;
#[cfg(feature = "cluster")]
pub use cluster::Cluster;
pub use connection::{Command, Connection, Dial, Dialling, Reply};
pub use count::Count;
pub use counters::Counters;
pub use decision::{Decision, Reason, Source};
pub use duration::Span;
pub use error::Error;
pub use http::{HeaderStyle, Problem};
pub use item::Item;
pub use json_log::{JsonLogOptions, json_log};
pub use kind::{Kind, QuotaUnit};
pub use lease::Lease;
pub use limiter::Limiter;
pub use on_error::OnError;
pub use options::{HashTag, Options};
pub use rate::Rate;
pub use rule::Rule;
pub use server::Server;
pub use telling::{DecisionEvent, EventKind};
