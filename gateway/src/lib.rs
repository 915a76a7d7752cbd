//! The gateway's parts: which limits a request meets, and what is asked of the server for them.
//!
//! ```text
//! config    files -> domains: limits in either form, and how HTTP requests become descriptors
//! matching  a domain and descriptors -> the limits that apply, each with its key
//! deciding  matched limits -> calls of the Rust client -> an answer with a row a descriptor
//! grpc      Envoy's rate limit service: a request -> descriptors, an answer -> statuses
//! http      forward-auth: a request -> descriptors, an answer -> a status; metrics and health
//! metrics   answers by the names of the configuration
//! samples   a domain -> the commands that sample requests would send
//! watching  the configuration in force, read again on change
//! ```
#![forbid(unsafe_code)]

pub mod arguments;
pub mod config;
pub mod deciding;
pub mod grpc;
pub mod http;
pub mod matching;
pub mod metrics;
pub mod samples;
pub mod watching;
