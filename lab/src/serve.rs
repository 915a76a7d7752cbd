//! Real decisions without a Redis: a server for the tests and the first hour of an application.
//!
//! ```text
//! server ──> resp         the bytes of a connection to commands, and replies to bytes
//!   └──────> session      what drivers send when they connect
//!               └──> database     the keys, which the engine decides on, and the clock
//! ```

mod database;
pub mod resp;
pub mod server;
pub mod session;
