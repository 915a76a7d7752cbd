//! Rate limiting inside Redis and Valkey.
//!
//! A server loads this library as the module `rl`; its commands answer one question in one round
//! trip: may this happen now? The engine decides; this crate carries bytes between the server's
//! API and the engine.
//!
//! `entry` is what the server calls and `api` what it is asked for; between them `commands` is
//! the table, `handler` the path of a call, and the rest is what its name says. Every file knows
//! only those below it.

mod api;
mod clock;
mod commands {
    pub mod arguments;
    pub mod row;
    pub mod table;
}
mod config;
mod ending;
mod entry;
mod error;
mod fault;
mod handler;
mod info;
mod keyspace;
mod leases {
    pub mod command;
    pub mod set;
}
mod policies {
    pub mod file;
    pub mod manage;
    pub mod metrics;
    pub mod statistics;
    pub mod table;
    pub mod r#use;
}
mod redis_cell;
mod replication;
mod reply;
mod rule_set;
