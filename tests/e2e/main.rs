//! Black-box tests: each starts a server of its own, talks to it through a client library,
//! and knows the module only by what it answers.

mod support;

mod acl;
mod callers;
mod changed_limits;
mod clock;
mod cluster;
mod concurrency;
mod config;
mod errors;
mod hostile;
mod info;
mod inspect;
mod loading;
mod metadata;
mod panics;
mod peek;
mod persistence;
mod promise;
mod protocol;
mod repair;
mod replication;
mod replies;
mod traces;
mod ttl;
mod wrongtype;
