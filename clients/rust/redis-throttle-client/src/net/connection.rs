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
use tokio::sync::SetOnce;

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
pub(crate) struct Sent(Arc<Record>);

#[derive(Debug, Default)]
struct Record {
    may_have_run: AtomicBool,
    /// Whether the reply is read although the caller has gone.
    drains: AtomicBool,
    /// Set when that reply is read, or its connection has ended.
    drained: SetOnce<()>,
}

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

    /// Returns a copy that can outlive the call.
    fn to_owned_words(&self) -> Command<'static> {
        let owned = |word: &Cow<'_, str>| Cow::Owned(word.to_string());
        let words = self.words.iter().map(owned).collect();
        Command { words, key: self.key.as_ref().map(owned), without_module: None, sent: None }
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
            record.set(sent);
        }
    }

    /// Returns the record of the sending, if one is kept.
    pub(crate) fn sent(&self) -> Option<&Sent> {
        self.sent.as_ref()
    }
}

impl Sent {
    /// Returns true if the command was sent, and no reply proves that it did not run or took
    /// nothing.
    pub fn may_have_run(&self) -> bool {
        self.0.may_have_run.load(Ordering::Acquire)
    }

    pub fn set(&self, may_have_run: bool) {
        self.0.may_have_run.store(may_have_run, Ordering::Release);
    }

    /// Records that the caller has gone, and that the reply is still read.
    pub fn begin_draining(&self) {
        self.0.drains.store(true, Ordering::Release);
    }

    pub fn end_draining(&self) {
        // A command is left by its caller once.
        let _ = self.0.drained.set(());
    }

    /// Waits until the reply is read, or cannot come any more.
    pub async fn drained(&self) {
        if self.0.drains.load(Ordering::Acquire) {
            self.0.drained.wait().await;
        }
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

/// Opens connections with the default configuration, and with TCP_NODELAY.
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
    let info = client.get_connection_info();
    // Otherwise a command waits until the server has confirmed the one before.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.clone().set_tcp_settings(tcp))?;
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(Box::new(connection))
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
                    answered(replies.ok_or_else(missing))
                })
            }
            Self::Multiplexed(connection) => {
                let (mut connection, cmd) = (connection.clone(), command.to_cmd());
                Box::pin(async move { answered(connection.send_packed_command(&cmd).await) })
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
