//! A connection to a server, and its end.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, Value};

use crate::Command;

/// The future of a server's reply, which [`Connection::send`] returns.
pub type Reply<'a> = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send + 'a>>;

/// A connection to one server. That of redis-rs implements it, and so do fakes.
pub trait Connection: Any + Send + Sync {
    /// Sends a command once and never repeats it. The limiter drops the future at its deadline. An
    /// error of the kind [`Io`](redis::ErrorKind::Io) means that the connection is lost.
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a>;

    /// Returns true if the connection is known to be closed. The limiter then opens another one
    /// before it sends a command.
    fn is_closed(&self) -> bool {
        false
    }
}

impl Connection for MultiplexedConnection {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        let (mut connection, cmd) = (self.clone(), command.to_cmd());
        Box::pin(async move { value_or_error(connection.send_packed_command(&cmd).await) })
    }

    /// Offers a command to the task that writes, and takes it back at once. The offer fails at once
    /// if that task has ended, because the connection is closed.
    fn is_closed(&self) -> bool {
        let (mut connection, ping) = (self.clone(), redis::cmd("PING"));
        let mut offer = std::pin::pin!(connection.send_packed_command(&ping));
        offer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

/// Returns an error reply as `Err`, because the driver may return it as a value.
pub(crate) fn value_or_error(reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match reply? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// The future of a reply, which can outlive the call.
pub(crate) type OwnedReply = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send>>;

/// A connection of a limiter.
pub(crate) enum Wire {
    Multiplexed(MultiplexedConnection),
    Other(Arc<dyn Connection>),
}

impl Wire {
    pub fn new(connection: Box<dyn Connection>) -> Self {
        let of_driver: &dyn Any = &*connection;
        match of_driver.downcast_ref::<MultiplexedConnection>() {
            Some(known) => Self::Multiplexed(known.clone()),
            None => Self::Other(connection.into()),
        }
    }

    /// Sends a command once, as [`Connection::send`] does. `asking` sends `ASKING` before it.
    pub fn start(&self, command: &Command<'_>, asking: bool) -> OwnedReply {
        match self {
            Self::Multiplexed(connection) if asking => {
                let (mut connection, mut both) = (connection.clone(), Pipeline::new());
                both.cmd("ASKING").add_command(command.to_cmd());
                Box::pin(async move {
                    let replies = connection.send_packed_commands(&both, 1, 1).await?.pop();
                    let missing = || RedisError::from((ErrorKind::Parse, "a reply is missing"));
                    value_or_error(replies.ok_or_else(missing))
                })
            }
            Self::Multiplexed(connection) => {
                let (mut connection, cmd) = (connection.clone(), command.to_cmd());
                Box::pin(async move { value_or_error(connection.send_packed_command(&cmd).await) })
            }
            Self::Other(connection) => {
                let (connection, command) = (connection.clone(), command.to_owned_words());
                Box::pin(async move {
                    if asking {
                        connection.send(&Command::new(["ASKING".into()])).await?;
                    }
                    connection.send(&command).await
                })
            }
        }
    }

    /// Returns true if the connection is known to be closed.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Multiplexed(connection) => Connection::is_closed(connection),
            Self::Other(connection) => connection.is_closed(),
        }
    }
}

/// An open connection.
pub(crate) struct Link {
    pub wire: Wire,
    /// The generation at the start of the dial.
    pub generation: u64,
    ended: AtomicBool,
    replied: AtomicBool,
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Link").field("is_up", &self.is_up()).finish_non_exhaustive()
    }
}

impl Link {
    pub fn new(connection: Box<dyn Connection>, generation: u64) -> Self {
        let (ended, replied) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { wire: Wire::new(connection), generation, ended, replied }
    }

    /// Ends the connection. Returns true the first time.
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    pub fn is_up(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Records a reply to a command.
    pub fn record_reply(&self) {
        self.replied.store(true, Ordering::Relaxed);
    }

    /// Returns true if a command has had a reply on this connection.
    pub fn has_replied(&self) -> bool {
        self.replied.load(Ordering::Relaxed)
    }
}
