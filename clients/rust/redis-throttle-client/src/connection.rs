//! The user's own connection, asked once a call.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::{Cmd, RedisError, Value};

/// A command of the server, and the key that it is routed by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Command<'a> {
    words: Vec<Cow<'a, str>>,
    /// The key that it is routed by, where that is not the second word.
    key: Option<Cow<'a, str>>,
}

impl<'a> Command<'a> {
    pub(crate) fn new(words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        Self { words: words.into_iter().collect(), key: None }
    }

    /// For the node of a key, wherever that stands in the words, and if it does.
    pub(crate) fn at(key: &'a str, words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        Self { words: words.into_iter().collect(), key: Some(key.into()) }
    }

    /// All words, the name first.
    #[must_use]
    pub fn words(&self) -> &[Cow<'a, str>] {
        &self.words
    }

    /// The first key: all keys of a command are in one slot of a cluster. Of a command without
    /// keys, one whose node it is for.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_else(|| &self.words[1])
    }

    /// The command as the driver sends it.
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

/// What a connection answers.
pub type Reply<'a> = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send + 'a>>;

/// Whatever a limiter asks: implemented for the connections of redis-rs, and by fakes.
pub trait Connection: Send + Sync + 'static {
    /// Sends a command once, and never again. The limiter drops the future when its time is over.
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a>;

    /// The node that a key is on, where there are several. Each has a circuit breaker of its own:
    /// one that is away does not shut the others.
    fn node(&self, key: &str) -> Option<Arc<str>> {
        let _ = key;
        None
    }
}

/// An error reply is an error, wherever the driver leaves it.
pub(crate) fn answered(reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match reply? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// The connection of a limiter. Those of the driver are asked without a box around the answer: it
/// would be larger than what a thread keeps for its next allocation, and for more than that threads
/// wait for each other.
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

    /// As [`Connection::send`].
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

    /// As [`Connection::node`].
    pub fn node(&self, key: &str) -> Option<Arc<str>> {
        if let Self::Other(connection) = self { connection.node(key) } else { None }
    }
}

/// It is not opened again when it is lost: [`ConnectionManager`] is.
///
/// [`ConnectionManager`]: https://docs.rs/redis/latest/redis/aio/struct.ConnectionManager.html
impl Connection for redis::aio::MultiplexedConnection {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        let (mut connection, cmd) = (self.clone(), command.to_cmd());
        Box::pin(async move { answered(connection.send_packed_command(&cmd).await) })
    }
}

/// Connects again by itself; what was under way when the connection was lost is not repeated.
#[cfg(feature = "connection-manager")]
impl Connection for redis::aio::ConnectionManager {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        let (mut connection, cmd) = (self.clone(), command.to_cmd());
        Box::pin(async move { answered(connection.send_packed_command(&cmd).await) })
    }
}
