#![doc = include_str!("../README.md")]

mod calls;
#[cfg(test)]
mod cases;
mod holds;
mod limiter;
mod net;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod rules;
#[cfg(feature = "testing")]
pub mod testing;
mod web;
mod wire;

pub use redis;

pub use calls::events::{DecisionEvent, EventKind};
pub use calls::json_log::{JsonLogOptions, json_log};
pub use holds::admission::{Admission, Reservation, RuleOrItem};
pub use holds::lease::Lease;
pub use limiter::Limiter;
pub use net::backends::Backend;
#[cfg(feature = "cluster")]
pub use net::cluster::Cluster;
pub use net::connection::{Command, Connection, Dial, Dialling, Reply};
pub use net::server::Server;
pub use rules::count::Count;
pub use rules::counters::Counters;
pub use rules::decision::{Decision, Reason, Source};
pub use rules::durations::Span;
pub use rules::errors::Error;
pub use rules::headers::{HeaderStyle, Problem};
pub use rules::item::Item;
pub use rules::kind::{Kind, QuotaUnit};
pub use rules::on_error::OnError;
pub use rules::options::{HashTag, Options};
pub use rules::rate::Rate;
pub use rules::rule::Rule;
pub use web::address::ClientAddress;
#[doc(hidden)]
pub use web::counting::Checked;
