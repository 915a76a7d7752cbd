//! Rate limiting inside Redis and Valkey.
//!
//! A server loads this library as the module `rl`. Its commands decide one question in one round
//! trip: may this happen now? The engine decides; this crate passes bytes between the server's API
//! and the engine.
//!
//! `entry` has the functions that the server calls, and `api` the server's functions that the
//! module calls. Between them, `commands` lists the commands, `handler` runs a call, and the name
//! of each other file says what it does. Dependencies go one way only, from `entry` to `api`.

mod api;
mod block;
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
    pub mod applied;
    pub mod file;
    pub mod manage;
    pub mod metrics;
    pub mod statistics;
    pub mod table;
}
mod redis_cell;
mod replication;
mod reply;
mod reservations;
mod rule_set;
mod top;
