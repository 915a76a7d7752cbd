//! A connection, and how the limiter opens it.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisError, Value};

/// A command for the server, and the key that routes it in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Command<'a> {
    words: Vec<Cow<'a, str>>,
    /// The key that routes the command, if it is not the second word.
    key: Option<Cow<'a, str>>,
    /// The words for a server without the module, if they differ by more than their form.
    without_module: Option<Vec<Cow<'a, str>>>,
    sent: Option<Sent>,
}

/// A record that a command was sent, and may have run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<AtomicBool>);

impl<'a> Command<'a> {
    pub(crate) fn new(words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        let words = words.into_iter().collect();
        Self { words, key: None, without_module: None, sent: None }
    }

    /// Builds a command for the node that has `key`, which need not be one of the words.
    pub(crate) fn at(key: &'a str, words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        Self { key: Some(key.into()), ..Self::new(words) }
    }

    /// Sets the words for a server without the module.
    pub(crate) fn or_without_module(self, words: Option<Vec<Cow<'a, str>>>) -> Self {
        Self { without_module: words, ..self }
    }

    /// Returns the words of the module's command that a server without the module can run.
    pub(crate) fn words_without_module(&self) -> &[Cow<'a, str>] {
        self.without_module.as_ref().unwrap_or(&self.words)
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

    /// Records in the returned value whether the command was sent.
    pub(crate) fn record(&mut self) -> Sent {
        self.sent.get_or_insert_default().clone()
    }

    /// Records the sending of this command in the same place as that of another form of it.
    pub(crate) fn record_with(self, other: &Command<'_>) -> Self {
        Self { sent: other.sent.clone(), ..self }
    }

    pub(crate) fn set_sent(&self, sent: bool) {
        if let Some(record) = &self.sent {
            record.0.store(sent, Ordering::Relaxed);
        }
    }
}

impl Sent {
    /// Returns true if the command was sent, and no error reply proves that it did not run.
    pub fn may_have_run(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Commands are compared by their words, whether they were sent or not.
impl PartialEq for Sent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Sent {}

impl Hash for Sent {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

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
        Box::pin(async move { answered(connection.send_packed_command(&cmd).await) })
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
pub(crate) fn answered(reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match reply? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// The future of a connection, which [`Dial::dial`] returns.
pub type Dialling<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, RedisError>> + Send + 'a>>;

/// Opens the connections of a limiter to one server.
///
/// The limiter keeps one connection. It calls `dial` for the first call, and again after a
/// connection is lost, falls silent or leads to a replica. Credentials may differ at each dial.
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection. The limiter drops the future if it takes longer than one second, or than
    /// the limiter's timeout if that is longer.
    fn dial(&self) -> Dialling<'_>;
}

/// Opens connections with the default configuration.
impl Dial for redis::Client {
    fn dial(&self) -> Dialling<'_> {
        Box::pin(dialled(self, AsyncConnectionConfig::new()))
    }
}

/// Opens connections with the given configuration, but without its timeouts: those of the limiter
/// apply. A credentials provider in it is asked at each dial.
impl Dial for (redis::Client, AsyncConnectionConfig) {
    fn dial(&self) -> Dialling<'_> {
        Box::pin(dialled(&self.0, self.1.clone()))
    }
}

/// Opens connections with a closure, such as one that asks for new credentials.
impl<F, R, C> Dial for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<C, RedisError>> + Send + 'static,
    C: Connection,
{
    fn dial(&self) -> Dialling<'_> {
        let dialled = self();
        Box::pin(async { dialled.await.map(|connection| Box::new(connection) as Box<_>) })
    }
}

async fn dialled(
    client: &redis::Client,
    config: AsyncConnectionConfig,
) -> Result<Box<dyn Connection>, RedisError> {
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(Box::new(connection))
}

/// A connection of a limiter. The driver's own connection is called without a boxed future. Such a
/// box would be too large for the allocator's per-thread cache, so threads would contend for
/// memory.
pub(crate) enum Wire {
    Multiplexed(MultiplexedConnection),
    Other(Box<dyn Connection>),
}

impl Wire {
    pub fn new(connection: Box<dyn Connection>) -> Self {
        let of_driver: &dyn Any = &*connection;
        match of_driver.downcast_ref::<MultiplexedConnection>() {
            Some(known) => Self::Multiplexed(known.clone()),
            None => Self::Other(connection),
        }
    }

    /// Sends a command once, as [`Connection::send`] does. `asking` sends `ASKING` before it.
    pub async fn send(&self, command: &Command<'_>, asking: bool) -> Result<Value, RedisError> {
        match self {
            Self::Multiplexed(connection) if asking => {
                let mut both = Pipeline::new();
                both.cmd("ASKING").add_command(command.to_cmd());
                // Boxed, because it is rare, and the future of each call would have its size.
                let replies = Box::pin(async {
                    connection
                        .clone()
                        .send_packed_commands(&both, 1, 1)
                        .await?
                        .pop()
                        .ok_or_else(|| RedisError::from((ErrorKind::Parse, "a reply is missing")))
                });
                answered(replies.await)
            }
            Self::Multiplexed(connection) => {
                let cmd = command.to_cmd();
                answered(connection.clone().send_packed_command(&cmd).await)
            }
            Self::Other(connection) => {
                if asking {
                    connection.send(&Command::new(["ASKING".into()])).await?;
                }
                connection.send(command).await
            }
        }
    }

    /// Returns true if this type sends a PING to find out whether the server answers. A connection
    /// of the program gets no other commands than those of calls.
    pub fn pings(&self) -> bool {
        matches!(self, Self::Multiplexed(_))
    }

    /// Waits until something arrives on the connection: the reply to a PING arrives after those to
    /// earlier commands, which the driver drops if their callers are gone. Returns false if the
    /// connection is lost.
    pub async fn is_answered(&self) -> bool {
        let Self::Multiplexed(connection) = self else { return std::future::pending().await };
        let ping = redis::cmd("PING");
        match connection.clone().send_packed_command(&ping).await {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse),
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
