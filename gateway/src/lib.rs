//! The gateway's parts: which limits a request meets, and what is asked of the server for them.
//!
//! ```text
//! config    files -> domains: limits in either form, and how HTTP requests become descriptors
//! matching  a domain and descriptors -> the limits that apply, each with its key
//! samples   a domain -> the commands that sample requests would send
//! ```
#![forbid(unsafe_code)]

pub mod config;
pub mod matching;
pub mod samples;
