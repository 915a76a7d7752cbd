//! The connection that the application passes to a limiter. It sends each call once.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::{Cmd, RedisError, Value};

/// A command for the server, and the key that routes it in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Command<'a> {
    words: Vec<Cow<'a, str>>,
    /// The key that routes the command, if it is not the second word.
    key: Option<Cow<'a, str>>,
}

impl<'a> Command<'a> {
    pub(crate) fn new(words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        Self { words: words.into_iter().collect(), key: None }
    }

    /// Builds a command for the node that has `key`, which need not be one of the words.
    pub(crate) fn at(key: &'a str, words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        Self { words: words.into_iter().collect(), key: Some(key.into()) }
    }

    /// Returns all words, the name first.
    #[must_use]
    pub fn words(&self) -> &[Cow<'a, str>] {
        &self.words
    }

    /// Returns the key that routes the command. It is the command's first key; all keys of a
    /// command are in one slot. For a command without keys, it is a key of the node that the
    /// command is for.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_else(|| &self.words[1])
    }

    /// Returns the command as the driver sends it.
    #[must_use]
    pub fn to_cmd(&self) -> Cmd {
        let bytes = self.words.iter().map(|word| word.len()).sum();
        let mut cmd = Cmd::with_capacity(self.words.len(), bytes);
        for word in &self.words {
            cmd.arg(word.as_bytes());
        }
        cmd
    }
}

/// The future of a server's reply, which [`Connection::send`] returns.
pub type Reply<'a> = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send + 'a>>;

/// A connection for a limiter. The connections of redis-rs implement it, and so do fakes.
pub trait Connection: Send + Sync + 'static {
    /// Sends a command once and never repeats it. The limiter drops the future at its deadline.
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a>;

    /// Returns the id of the node that has the key, if there are several nodes. Each node has its
    /// own circuit breaker, so that an unavailable node does not block the others.
    fn node(&self, key: &str) -> Option<Arc<str>> {
        let _ = key;
        None
    }
}

/// Returns an error reply as `Err`, because the driver may return it as a value.
pub(crate) fn answered(reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match reply? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// The connection of a limiter. The driver's own connections are called without a boxed future.
/// Such a box would be too large for the allocator's per-thread cache, so threads would contend for
/// memory.
pub(crate) enum Wire {
    Multiplexed(redis::aio::MultiplexedConnection),
    #[cfg(feature = "connection-manager")]
    Managed(redis::aio::ConnectionManager),
    Other(Box<dyn Connection>),
}

impl Wire {
    pub fn new(connection: impl Connection) -> Self {
        let of_driver: &dyn Any = &connection;
        if let Some(known) = of_driver.downcast_ref::<redis::aio::MultiplexedConnection>() {
            return Self::Multiplexed(known.clone());
        }
        #[cfg(feature = "connection-manager")]
        if let Some(known) = of_driver.downcast_ref::<redis::aio::ConnectionManager>() {
            return Self::Managed(known.clone());
        }
        Self::Other(Box::new(connection))
    }

    /// Sends a command once, as [`Connection::send`] does.
    pub async fn send(&self, command: &Command<'_>) -> Result<Value, RedisError> {
        match self {
            Self::Multiplexed(connection) => {
                let cmd = command.to_cmd();
                answered(connection.clone().send_packed_command(&cmd).await)
            }
            #[cfg(feature = "connection-manager")]
            Self::Managed(connection) => {
                let cmd = command.to_cmd();
                answered(connection.clone().send_packed_command(&cmd).await)
            }
            Self::Other(connection) => connection.send(command).await,
        }
    }

    /// Returns the id of the key's node, as [`Connection::node`] does.
    pub fn node(&self, key: &str) -> Option<Arc<str>> {
        if let Self::Other(connection) = self { connection.node(key) } else { None }
    }
}

/// Does not reconnect after a lost connection; [`ConnectionManager`] does.
///
/// [`ConnectionManager`]: https://docs.rs/redis/latest/redis/aio/struct.ConnectionManager.html
impl Connection for redis::aio::MultiplexedConnection {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        let (mut connection, cmd) = (self.clone(), command.to_cmd());
        Box::pin(async move { answered(connection.send_packed_command(&cmd).await) })
    }
}

/// Reconnects by itself. Calls in flight during a loss are not repeated.
#[cfg(feature = "connection-manager")]
impl Connection for redis::aio::ConnectionManager {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        let (mut connection, cmd) = (self.clone(), command.to_cmd());
        Box::pin(async move { answered(connection.send_packed_command(&cmd).await) })
    }
}
