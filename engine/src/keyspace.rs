//! Keys in memory, and the module's commands on them, for programs that run without a server:
//! the Rust client's fake, and `redis-throttle-lab serve`. Built only with the feature `keyspace`.
//!
//! Commands get the same replies as from a server that has the module and the default settings.
//! There are no policies, so a rule of a policy needs a default.

mod commands;
mod keys;
mod refused;
mod reply;
mod reserving;
#[cfg(test)]
mod tests;

use crate::time::Instant;
use keys::Keys;
pub use reply::Reply;

/// The keys of one database.
#[derive(Debug, Default)]
pub struct Keyspace(Keys);

impl Keyspace {
    /// Runs a command of the module at `now`, or `DEL`, `EXISTS`, `PTTL` or `FLUSHALL`. `words`
    /// begins with the command's name.
    ///
    /// # Errors
    ///
    /// The text of the error reply.
    pub fn run(&mut self, now: Instant, words: &[&[u8]]) -> Result<Reply, String> {
        commands::run(&mut self.0, now, words).map_err(|refused| refused.text(words))
    }

    /// Frees the memory of expired keys. They count as missing also without this.
    pub fn sweep(&mut self, now: Instant) {
        self.0.sweep(now);
    }

    /// Returns an estimate of the memory that all keys occupy, expired ones included.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
