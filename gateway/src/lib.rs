//! The gateway's parts: which limits a request meets, and the calls to the server for them.
//!
//! ```text
//! availability  the server's circuit breaker -> log
//! config    files -> domains: limits in either form, and how HTTP requests become descriptors
//! matching  a domain and descriptors -> the limits that apply, each with its key
//! decider   matched limits -> calls of the Rust client -> a decision with a row per descriptor
//! grpc      Envoy's rate limit service: a request -> descriptors, a decision -> statuses
//! http      forward-auth: a request -> descriptors, a decision -> a status; metrics and health
//! listener  addresses, unix sockets and TLS -> connections for grpc and http
//! log       events as lines on standard error
//! metrics   decisions by the names of the configuration
//! reading   a file -> its bytes, if it is one
//! refusals  calls that the server refused -> log
//! reload    the configuration in force, read again on change
//! samples   a domain -> the commands that sample requests would send
//! server    the program: listens, follows changes of files, drains
//! ```
#![forbid(unsafe_code)]

pub mod arguments;
mod availability;
pub mod config;
pub mod decider;
pub mod grpc;
pub mod http;
pub mod listener;
pub mod log;
pub mod matching;
pub mod metrics;
mod reading;
mod refusals;
pub mod reload;
pub mod samples;
pub mod server;
pub mod tls;
