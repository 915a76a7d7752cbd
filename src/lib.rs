//! Rate limiting inside Redis and Valkey.
//!
//! A server loads this library as the module `rl`; its commands answer one question in one round
//! trip: may this happen now? Read the modules in this order:
//!
//! 1. [`limiter`]: the algorithms as pure functions of state, time and cost;
//! 2. [`state`]: how their states are written as bytes;
//! 3. [`grammar`]: how arguments are read;
//! 4. [`policy`]: limits that a call names instead of carrying them;
//! 5. [`exposition`]: how counters are written for whoever watches;
//! 6. `server`: the commands, between the server's API and the five above.
//!
//! Without the default feature `module` only the pure part is compiled, for benches, fuzz targets
//! and programs that want to compute a decision without a server.

pub mod exposition;
pub mod grammar;
pub mod limiter;
pub mod policy;
pub mod state;

#[cfg(feature = "module")]
mod server;
