//! A fake server in this process, for the tests of an application. It uses no socket, and its clock
//! is tokio's, which a test can pause and advance.
//!
//! ```
//! use redis_throttle_client::{Rule, testing::FakeServer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), redis_throttle_client::Error> {
//! let server = FakeServer::new();
//! let limiter = server.limiter();
//! let once = Rule::gcra("once", 1, 1, "1m")?;
//! assert!(limiter.check(once.of("42")).await?.allowed);
//! assert!(!limiter.check(once.of("42")).await?.allowed);
//! tokio::time::advance(std::time::Duration::from_secs(60)).await;
//! assert!(limiter.check(once.of("42")).await?.allowed);
//! # Ok(())
//! # }
//! ```
//!
//! It decides with the module's engine. Calls of all algorithms, calls of several rules, refunds,
//! charges, bans, leases and reservations get the same replies as from a server that has the module
//! and the default settings. There are no policies, so a rule of a policy needs a default. The
//! clock starts on Monday, 2024-01-01 00:00:00 UTC, when a day, week, month, quarter and year begin
//! in UTC.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use redis::{ErrorKind, RedisError, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::net::connection::{Connection, Reply, value_or_error};
use crate::net::dial::{Dial, Dialling};
use crate::rules::clock;
use crate::wire::command::Command;
use crate::{Error, Limiter, Options};
use redis_throttle_engine::keyspace::{Keyspace, Reply as EngineReply};
use redis_throttle_engine::time::{Instant as EngineInstant, Span};

/// The start of the clock, in microseconds: Monday, 2024-01-01, 00:00 UTC.
const START: EngineInstant = EngineInstant::from_us(1_704_067_200_000_000);

/// A fake server that stores state as a real server does. Clones share one server.
#[derive(Debug, Clone)]
pub struct FakeServer(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    began: Instant,
    calls: Vec<Vec<String>>,
    keys: Keyspace,
    failure: Option<Failure>,
    /// Whether calls wait.
    hangs: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
enum Failure {
    Down,
    Replies(String),
}

impl Default for FakeServer {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeServer {
    /// Creates an empty server.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            began: clock::now(),
            calls: Vec::new(),
            keys: Keyspace::default(),
            failure: None,
            hangs: watch::Sender::new(false),
        })))
    }

    /// Creates a limiter over this server, with the default options.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        Limiter::new(self.clone())
    }

    /// Creates a limiter over this server.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of an option that is out of range.
    pub fn limiter_with(&self, options: Options) -> Result<Limiter, Error> {
        Limiter::with_options(self.clone(), options)
    }

    /// Returns the words of every call received.
    #[must_use]
    pub fn calls(&self) -> Vec<Vec<String>> {
        self.state().calls.clone()
    }

    /// Fails every call from now on, as if no server were listening.
    pub fn go_away(&self) {
        self.state().failure = Some(Failure::Down);
    }

    /// Replies to no call from now on. Calls on connections that are still open get their replies
    /// after [`recover`](FakeServer::recover), as from a server that was stopped.
    pub fn hang(&self) {
        self.state().hangs.send_replace(true);
    }

    /// Replies to every call from now on with this error, such as `OOM command not allowed`.
    pub fn reply_with(&self, error: &str) {
        self.state().failure = Some(Failure::Replies(error.to_owned()));
    }

    /// Replies to calls normally again.
    pub fn recover(&self) {
        let mut state = self.state();
        state.failure = None;
        state.hangs.send_replace(false);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial for FakeServer {
    fn dial(&self) -> Dialling<'_> {
        let connection: Box<dyn Connection> = Box::new(self.clone());
        Box::pin(async { Ok(connection) })
    }
}

impl Connection for FakeServer {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            let mut hangs = {
                let mut state = self.state();
                state.calls.push(command.words().iter().map(|word| word.to_string()).collect());
                state.hangs.subscribe()
            };
            // The wait cannot fail: the sender lives as long as this connection.
            let _ = hangs.wait_for(|hangs| !hangs).await;
            // The call runs at once, so calls of one instant keep their order.
            let reply = {
                let mut state = self.state();
                match state.failure.clone() {
                    Some(Failure::Down) => Err((ErrorKind::Io, "connection refused").into()),
                    Some(Failure::Replies(error)) => Err(error_reply(&error)),
                    None => state.reply(command.words()),
                }
            };
            // As over a socket, another task may run before the reply.
            tokio::task::yield_now().await;
            reply
        })
    }
}

fn error_reply(error: &str) -> RedisError {
    let parsed = redis::parse_redis_value(format!("-{error}\r\n").as_bytes());
    value_or_error(parsed).err().unwrap_or_else(|| (ErrorKind::Parse, "not an error reply").into())
}

impl State {
    fn now(&self) -> EngineInstant {
        let passed_us = (clock::now() - self.began).as_micros();
        START.after(Span::from_us_saturating(passed_us)).min(EngineInstant::CLOCK_MAX)
    }

    fn reply(&mut self, words: &[Cow<'_, str>]) -> Result<Value, RedisError> {
        let now = self.now();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.keys.run(now, &words).map(value).map_err(|error| error_reply(&error))
    }
}

fn value(reply: EngineReply) -> Value {
    match reply {
        EngineReply::Okay => Value::Okay,
        EngineReply::Integer(integer) => Value::Int(integer),
        EngineReply::Array(all) => Value::Array(all.into_iter().map(value).collect()),
    }
}
