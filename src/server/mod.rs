//! The module in the server: the only folder that names `redis_module`.
//!
//! `entry` is what the server calls and `api` what it is asked for; between them `commands` is the
//! table, `handler` the path of a call, and the rest is what its name says. Every file knows only
//! those below it.

mod api;
mod arguments;
mod clock;
mod commands;
mod config;
mod entry;
mod error;
mod fault;
mod handler;
mod holders;
mod info;
mod keyspace;
mod leases;
mod metrics;
mod policies;
mod policy_commands;
mod policy_file;
mod policy_statistics;
mod redis_cell;
mod replication;
mod reply;
mod rows;
mod several;
mod subject;
mod usage;
