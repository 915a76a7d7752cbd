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

pub use calls::json_log::{JsonLogOptions, json_log};
pub use calls::state::Limiter;
pub use holds::admission::{Admission, RuleOrItem};
pub use holds::lease::Lease;
pub use holds::reservation::Reservation;
#[cfg(feature = "cluster")]
pub use net::cluster::Cluster;
pub use net::connection::{Connection, Reply};
pub use net::dial::{Dial, Dialling};
pub use net::server::Server;
pub use rules::count::Count;
pub use rules::counters::Counters;
pub use rules::decision::{Decision, Reason, Source};
pub use rules::durations::Span;
pub use rules::errors::Error;
pub use rules::event::{DecisionEvent, EventKind};
pub use rules::headers::HeaderStyle;
pub use rules::item::Item;
pub use rules::kind::{Kind, QuotaUnit};
pub use rules::options::{Backend, HashTag, Options};
pub use rules::problem::Problem;
pub use rules::rate::Rate;
pub use rules::rule::{OnError, Rule};
pub use web::address::ClientAddress;
#[doc(hidden)]
pub use web::counting::Checked;
pub use wire::command::Command;
