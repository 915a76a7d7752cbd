//! Black-box tests: each starts a server of its own, talks to it through a client library,
//! and knows the module only by what it answers.

mod support;

mod acl;
mod byte_fuzz;
mod callers;
mod changed_limits;
mod clock;
mod cluster;
mod concurrency;
mod config;
mod corrupt_state;
mod crash_report;
mod durability;
mod errors;
mod failover;
mod golden;
mod grammar_fuzz;
mod hostile;
mod info;
mod inspect;
mod loading;
mod longer_rule;
mod memory;
mod metadata;
mod neighbours;
mod panic_points;
mod panics;
mod peek;
mod persistence;
mod promise;
mod protocol;
mod repair;
mod replicas;
mod replication;
mod replies;
mod reservations;
mod settling;
mod several;
mod stream;
mod traces;
mod ttl;
mod unloading;
mod users;
mod wrongtype;
