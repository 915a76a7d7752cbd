//! The server of a limiter, or its cluster, and the node for each key.

use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::time::Instant;

#[cfg(feature = "cluster")]
use crate::net::cluster::{Address, Cluster, Slots};
use crate::net::{budget::Budget, dial::Dial, node::Node};
use crate::{Error, Options};

/// A server, or a cluster, to which a limiter opens its own connections. Create it from a
/// `redis::Client`, with or without an `AsyncConnectionConfig`, from a `Cluster`, or from any
/// [`Dial`].
pub struct Server(pub(crate) Box<dyn FnOnce(&Options) -> Nodes + Send + Sync>);

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").finish_non_exhaustive()
    }
}

impl<D: Dial> From<D> for Server {
    fn from(dialler: D) -> Self {
        Self(Box::new(|options| Nodes::One(Node::new(Box::new(dialler), options))))
    }
}

#[cfg(feature = "cluster")]
impl From<Cluster> for Server {
    fn from(cluster: Cluster) -> Self {
        let seeds = cluster.addresses();
        let diallers = Box::new(move |address: &Address| cluster.dialler(address));
        Self(Box::new(|options| Nodes::Many(Slots::new(seeds, diallers, options))))
    }
}

/// The nodes of a server or of a cluster.
pub(crate) enum Nodes {
    One(Arc<Node>),
    #[cfg(feature = "cluster")]
    Many(Arc<Slots>),
}

impl Nodes {
    pub fn new(server: Server, options: &Options) -> Self {
        (server.0)(options)
    }

    /// Returns the node of a key. In a cluster whose slots are not known yet, waits for them.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unused_async, unused_variables))]
    pub async fn find(
        &self,
        key: &str,
        began: Instant,
        budget: &Budget,
    ) -> Result<Arc<Node>, Error> {
        match self {
            Self::One(node) => Ok(node.clone()),
            #[cfg(feature = "cluster")]
            Self::Many(slots) => budget.bound(slots.find(key, began)).await,
        }
    }

    /// Returns the number of nodes whose circuit breaker is open.
    pub fn open_breakers(&self) -> usize {
        match self {
            Self::One(node) => usize::from(node.is_open()),
            #[cfg(feature = "cluster")]
            Self::Many(slots) => slots.open_breakers(),
        }
    }

    /// Returns the instant at which a call begins at its node: later than the call, if it had to
    /// wait for the slots.
    pub fn begin(&self, began: Instant) -> Instant {
        match self {
            Self::One(_) => began,
            #[cfg(feature = "cluster")]
            Self::Many(_) => crate::rules::clock::now(),
        }
    }

    /// Returns all nodes.
    pub fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![node.clone()],
            #[cfg(feature = "cluster")]
            Self::Many(slots) => slots.nodes(),
        }
    }

    /// Turns a redirection into a rejection, if this limiter has one server: the program talks to a
    /// node of a cluster by mistake.
    pub fn or_misled(&self, error: Error) -> Error {
        let kind = error.by_driver().map(RedisError::kind);
        let redirects =
            matches!(kind, Some(ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask)));
        match (self, error) {
            (Self::One(_), Error::Unavailable { source: Some(source), .. }) if redirects => {
                Error::CommandRejected { source }
            }
            (_, error) => error,
        }
    }

    /// Returns the node that a redirection names, and true if the command needs `ASKING` there.
    /// `None` for other errors.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub fn redirected(&self, from: &Arc<Node>, error: &Error) -> Option<(Arc<Node>, bool)> {
        match self {
            Self::One(_) => None,
            #[cfg(feature = "cluster")]
            Self::Many(slots) => slots.redirected(from, error),
        }
    }

    /// Reads the slots of a cluster again in the background, if an error suggests that they have
    /// moved.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub fn failed(&self, error: &Error) {
        match self {
            Self::One(_) => {}
            #[cfg(feature = "cluster")]
            Self::Many(slots) => slots.failed(error),
        }
    }
}
