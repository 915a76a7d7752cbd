//! Nodes, their connections, and the calls that wait for them.

#[cfg(feature = "cluster")]
pub(crate) mod attempt;
pub(crate) mod backends;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod clock;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod line;
pub(crate) mod node;
pub(crate) mod pass;
pub(crate) mod server;
