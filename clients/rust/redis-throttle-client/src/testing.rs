//! A server in this process, for the tests of an application: no socket, and tokio's clock, which a
//! test pauses and moves.
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
//! It decides as the module does for the rules of rates and windows (a sliding window as a log) and
//! for leases. A quota is 30 days, a backoff has its free attempts and then `max`: what depends on
//! those needs the real server and its frozen clock.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use redis::{ErrorKind, RedisError, Value};
use tokio::time::Instant;

use crate::connection::{Command, Connection, Reply, answered};
use crate::duration::{DAY_US, Span};
use crate::local::{Act, Limits, LocalLimiter, Row};
use crate::{Error, Kind, Limiter, Options, clock};

const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(1_000_000).expect("above zero");
const MONTH_US: u64 = 30 * DAY_US;

/// Keeps states as a server does. Its clones are the same server.
#[derive(Debug, Clone)]
pub struct FakeServer(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    began: Instant,
    calls: Vec<Vec<String>>,
    keys: LocalLimiter,
    /// Until when each holder has its permit.
    leases: HashMap<String, HashMap<String, u64>>,
    failure: Option<Failure>,
}

#[derive(Debug, Clone)]
enum Failure {
    Away,
    Hangs,
    Replies(String),
}

impl Default for FakeServer {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeServer {
    /// An empty server.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            began: clock::now(),
            calls: Vec::new(),
            keys: LocalLimiter::new(KEYS_MAX),
            leases: HashMap::new(),
            failure: None,
        })))
    }

    /// A limiter that asks this server, with the default options.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        Limiter::new(self.clone())
    }

    /// A limiter that asks this server.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of an option that is out of its range.
    pub fn limiter_with(&self, options: Options) -> Result<Limiter, Error> {
        Limiter::with_options(self.clone(), options)
    }

    /// The words of every call that it got.
    #[must_use]
    pub fn calls(&self) -> Vec<Vec<String>> {
        self.state().calls.clone()
    }

    /// From now on nobody is there.
    pub fn go_away(&self) {
        self.state().failure = Some(Failure::Away);
    }

    /// From now on there is no answer.
    pub fn hang(&self) {
        self.state().failure = Some(Failure::Hangs);
    }

    /// From now on this error is the reply: `OOM command not allowed`, `WRONGTYPE ...`.
    pub fn reply_with(&self, error: &str) {
        self.state().failure = Some(Failure::Replies(error.to_owned()));
    }

    /// It answers again.
    pub fn recover(&self) {
        self.state().failure = None;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection for FakeServer {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            // As over a socket, somebody else may run before the answer.
            tokio::task::yield_now().await;
            let failure = {
                let mut state = self.state();
                state.calls.push(command.words().iter().map(|word| word.to_string()).collect());
                state.failure.clone()
            };
            match failure {
                Some(Failure::Away) => Err((ErrorKind::Io, "connection refused").into()),
                Some(Failure::Hangs) => std::future::pending().await,
                Some(Failure::Replies(error)) => Err(error_reply(&error)),
                None => self.state().reply(command.words()),
            }
        })
    }
}

fn error_reply(error: &str) -> RedisError {
    let parsed = redis::parse_redis_value(format!("-{error}\r\n").as_bytes());
    answered(parsed).err().unwrap_or_else(|| (ErrorKind::Parse, "not an error reply").into())
}

fn unreadable(words: &[&str]) -> RedisError {
    error_reply(&format!("ERR unknown command '{}'", words.join(" ")))
}

fn array(row: &[i64]) -> Value {
    Value::Array(row.iter().copied().map(Value::Int).collect())
}

impl State {
    fn now_us(&self) -> u64 {
        let passed_us = (clock::now() - self.began).as_micros();
        // From a second on: an instant of 0 means that a window is not open.
        1_000_000 + u64::try_from(passed_us).unwrap_or(u64::MAX / 2)
    }

    fn reply(&mut self, words: &[Cow<'_, str>]) -> Result<Value, RedisError> {
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        match words[..] {
            ["DEL", key] => {
                let (state, leases) = (self.keys.forget(key), self.leases.remove(key).is_some());
                Ok(Value::Int(i64::from(state || leases)))
            }
            ["RL.RENEW", key, id, ttl] => {
                let until = self.now_us() + ttl.whole_us().unwrap_or(0);
                let holder = self.holders(key).get_mut(id);
                Ok(Value::Int(i64::from(holder.map(|held| *held = until).is_some())))
            }
            ["RL.RELEASE", key, id] => {
                Ok(Value::Int(i64::from(self.holders(key).remove(id).is_some())))
            }
            ["RL.PEEK", key, ref rule @ ..] => Ok(array(&self.rule(key, rule, Act::Peek)?)),
            ["RL.REFUND", key, ref rule @ ..] => {
                Ok(array(&self.rule(key, rule, Act::Refund)?[..5]))
            }
            ["RL.CHARGE", key, ref rule @ ..] => {
                Ok(array(&self.rule(key, rule, Act::Charge)?[..5]))
            }
            ["RL.ALL", ref pairs @ ..] => self.all(pairs, Act::Take),
            ["RL.PEEKALL", ref pairs @ ..] => self.all(pairs, Act::Peek),
            [command, key, ref rest @ ..] => {
                let kind = command.strip_prefix("RL.").ok_or_else(|| unreadable(&words))?;
                let rule: Vec<_> = [kind].iter().chain(rest).copied().collect();
                Ok(array(&self.rule(key, &rule, Act::Take)?))
            }
            _ => Err(unreadable(&words)),
        }
    }

    fn all(&mut self, pairs: &[&str], act: Act) -> Result<Value, RedisError> {
        let split = |pair: &[&'_ str]| -> (String, Vec<String>) {
            (pair[0].to_owned(), pair[1].split(' ').map(str::to_owned).collect())
        };
        let asked: Vec<_> = pairs.chunks_exact(2).map(split).collect();
        let mut rows = |act| -> Result<Vec<Vec<i64>>, RedisError> {
            let row = |(key, words): &(String, Vec<String>)| {
                self.rule(key, &words.iter().map(String::as_str).collect::<Vec<_>>(), act)
            };
            asked.iter().map(row).collect()
        };
        let mut found = rows(Act::Peek)?;
        let denied = (0..found.len()).filter(|at| found[*at][0] == 0);
        let at = match denied.max_by_key(|at| (found[*at][3] < 0, found[*at][3])) {
            Some(at) => {
                // Nothing was taken, so nothing is missing.
                for (row, (_, words)) in found.iter_mut().zip(&asked) {
                    row[2] += row[0].min(1) * given_back(words);
                }
                at
            }
            None => {
                if act == Act::Take {
                    found = rows(Act::Take)?;
                }
                (0..found.len()).min_by_key(|at| found[*at][2]).unwrap_or(0)
            }
        };
        let mut reply: Vec<_> = found[at][..5].iter().copied().map(Value::Int).collect();
        reply.push(Value::Int(i64::try_from(at).unwrap_or(0) + 1));
        reply.extend(found.iter().map(|row| array(row)));
        Ok(Value::Array(reply))
    }

    /// The row of a rule: five integers, or seven of a policy.
    fn rule(&mut self, key: &str, words: &[&str], act: Act) -> Result<Vec<i64>, RedisError> {
        let after = |name: &str| words.iter().position(|word| *word == name).map(|at| at + 1);
        let unread = || unreadable(words);
        if words[0] == "LEASE" {
            let [_, id, limit, ttl] = words else { return Err(unread()) };
            let limit = limit.parse().map_err(|_| unread())?;
            let ttl_us = ttl.whole_us().ok_or_else(unread)?;
            return Ok(self.lease(key, id, limit, ttl_us, act).to_vec());
        }
        let cost = after("COST").map_or(Ok(1), |at| words[at].parse()).map_err(|_| unread())?;
        if words[0] == "USE" {
            let Some(default) = after("DEFAULT") else {
                return Err(error_reply("NOPOLICY no such policy"));
            };
            let cost = format!("{cost}");
            let words: Vec<_> = words[default..].iter().copied().chain(["COST", &cost]).collect();
            let mut row = self.rule(key, &words, act)?;
            row.extend([row[0], row[3]]);
            return Ok(row);
        }
        let partial = act == Act::Take && after("PARTIAL").is_some();
        let limits = limits(words).ok_or_else(unread)?;
        let act = if partial { Act::TakePart } else { act };
        let now_us = self.now_us();
        Ok(self.keys.decide(limits, key, cost, now_us, act).to_vec())
    }

    fn holders(&mut self, key: &str) -> &mut HashMap<String, u64> {
        let now_us = self.now_us();
        let holders = self.leases.entry(key.to_owned()).or_default();
        holders.retain(|_, until| *until > now_us);
        holders
    }

    fn lease(&mut self, key: &str, id: &str, limit: usize, ttl_us: u64, act: Act) -> Row {
        let now_us = self.now_us();
        let holders = self.holders(key);
        let others = holders.keys().filter(|name| *name != id).count();
        let allowed = others < limit;
        if allowed && act == Act::Take {
            holders.insert(id.to_owned(), now_us + ttl_us);
        }
        let mut ends: Vec<_> = holders.values().copied().collect();
        ends.sort_unstable();
        let last = ends.last().copied().unwrap_or(now_us + ttl_us);
        let freed = ends.get(ends.len().saturating_sub(limit)).copied().unwrap_or(last);
        let ms = |until: u64| i64::try_from((until - now_us).div_ceil(1000)).unwrap_or(i64::MAX);
        let left = limit.saturating_sub(others + usize::from(allowed));
        let of = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        [i64::from(allowed), of(limit), of(left), if allowed { 0 } else { ms(freed) }, ms(last)]
    }
}

/// What a rule that would allow has left out of what remains.
fn given_back(words: &[String]) -> i64 {
    let cost = words.iter().position(|word| word == "COST").and_then(|at| words.get(at + 1));
    let of_lease = words[0] == "LEASE";
    if of_lease { 0 } else { cost.map_or(1, |cost| cost.parse().unwrap_or(0)) }
}

fn limits(words: &[&str]) -> Option<Limits> {
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let us = |at: usize| words.get(at)?.whole_us();
    let capacity = number(1)?;
    let windowed = |kind, period_us| Some(Limits { kind, capacity, rate: 0, period_us });
    let rated = |kind| Some(Limits { kind, capacity, rate: number(2)?, period_us: us(3)? });
    match words[0] {
        "GCRA" => rated(Kind::Gcra),
        "TOKENBUCKET" => rated(Kind::TokenBucket),
        "LEAKYBUCKET" => rated(Kind::LeakyBucket),
        "FIXED" => windowed(Kind::Fixed, us(2)?),
        "SLIDING" => windowed(Kind::Sliding, us(2)?),
        "SLIDINGLOG" => windowed(Kind::SlidingLog, us(2)?),
        "QUOTA" => windowed(Kind::Fixed, MONTH_US),
        "BACKOFF" => windowed(Kind::Fixed, us(3)?),
        _ => None,
    }
}
