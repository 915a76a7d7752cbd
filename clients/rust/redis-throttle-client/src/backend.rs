//! Who decides on the server: the module, or where there is none its library, as functions or as a
//! script. One choice is remembered; it is made anew when a call proves that it did not run.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, Script, ServerErrorKind, Value};
use tokio::sync::Mutex;

use crate::Error;
use crate::connection::{Command, Connection, Wire};
use crate::protocol;

const LIBRARY: &str = include_str!("redis_throttle.lua");
const SCRIPT: &str = include_str!("redis_throttle_script.lua");

const NO_FUNCTION: &str = "Function not found";
/// The first time, after another call has looked, and after this one has.
const TRIES_MAX: usize = 3;
/// Somebody may load a library between our question and our answer to it.
const LOADS_MAX: usize = 3;
/// A search goes on when its call has timed out, so that a later one finds what it found.
const SEARCH_MAX: Duration = Duration::from_secs(1);

/// What decides on the server: as an option what is wanted, of [`Limiter::ready`] what answers.
///
/// [`Limiter::ready`]: crate::Limiter::ready
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// The first of the others that is there, in their order. Never what answers.
    #[default]
    Auto,
    /// The module.
    Module,
    /// The library of functions, of Redis 7.0 and Valkey on: loaded where it is missing or older.
    Functions,
    /// The same as a script, for servers and users without functions.
    Script,
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "module" => Ok(Self::Module),
            "functions" => Ok(Self::Functions),
            "script" => Ok(Self::Script),
            _ => Err(Error::invalid("backend", "expected auto, module, functions or script")),
        }
    }
}

/// A choice, and how many searches led to it. `Auto` is none: nobody has looked yet.
#[derive(Debug, Clone, Copy)]
struct Choice {
    backend: Backend,
    searches: u64,
}

/// A connection over which one of the back ends answers.
pub(crate) struct Backends {
    pub connection: Wire,
    wanted: Backend,
    script_sha: String,
    found: AtomicU8,
    searches: AtomicU64,
    searched: std::sync::Mutex<HashMap<Option<Arc<str>>, LastSearch>>,
}

/// The number of a node's last search, which is locked while there is one.
type LastSearch = Arc<Mutex<u64>>;

/// What came of a command that was sent.
enum Outcome {
    Reply(Value),
    /// It did not run, for this reason; none when nobody has looked yet, and it was not sent.
    NotRun(Option<RedisError>),
}

impl Backends {
    pub fn new(connection: impl Connection, wanted: Backend) -> Self {
        let found = match wanted {
            Backend::Auto => Backend::Module,
            // One of an older version answers, too: it is looked at before the first call.
            Backend::Functions => Backend::Auto,
            one => one,
        };
        Self {
            connection: Wire::new(connection),
            wanted,
            script_sha: Script::new(SCRIPT).get_hash().to_owned(),
            found: AtomicU8::new(found as u8),
            searches: AtomicU64::new(0),
            searched: std::sync::Mutex::default(),
        }
    }

    /// Which one answered last.
    pub fn found(&self) -> Backend {
        let all = [Backend::Auto, Backend::Module, Backend::Functions, Backend::Script];
        all[usize::from(self.found.load(Ordering::Acquire))]
    }

    fn choice(&self) -> Choice {
        let searches = self.searches.load(Ordering::Acquire);
        Choice { backend: self.found(), searches }
    }

    /// Sends a command of the module to whoever is there. What did not run is sent again, and what
    /// may have run is not.
    pub async fn send(self: &Arc<Self>, command: &Command<'_>) -> Result<Value, Error> {
        let tried = self.choice();
        let (mut backend, mut since) = (tried.backend, tried.searches);
        for _ in 1..TRIES_MAX {
            if let Outcome::Reply(reply) = self.attempt(command, backend).await? {
                return Ok(reply);
            }
            backend = self.search(command.key(), backend, since).await?;
            // What another call has found may have been another node's.
            since = u64::MAX;
        }
        match self.attempt(command, backend).await? {
            Outcome::Reply(reply) => Ok(reply),
            // What never stays does not pass by itself.
            Outcome::NotRun(Some(error)) => Err(error.into()),
            Outcome::NotRun(None) => Err(Error::away("nobody has found a back end")),
        }
    }

    async fn attempt(&self, command: &Command<'_>, backend: Backend) -> Result<Outcome, Error> {
        let written = match backend {
            Backend::Auto if command.words()[0].starts_with("RL.") => {
                return Ok(Outcome::NotRun(None));
            }
            // What every server knows needs none.
            Backend::Auto | Backend::Module => None,
            Backend::Functions => protocol::as_function(command),
            Backend::Script => protocol::as_script(command, &self.script_sha),
        };
        let sent = written.as_ref().unwrap_or(command);
        match self.connection.send(sent).await {
            Ok(reply) => Ok(Outcome::Reply(reply)),
            Err(error) if self.wanted != Backend::Module && did_not_run(&error, sent) => {
                Ok(Outcome::NotRun(Some(error)))
            }
            Err(error) => {
                self.lost(&error);
                Err(error.into())
            }
        }
    }

    /// After a restart the server may have the module: the next call begins with it.
    fn lost(&self, error: &RedisError) {
        let away = match error.kind() {
            ErrorKind::Io => !error.is_timeout(),
            ErrorKind::ClusterConnectionNotFound
            | ErrorKind::Server(ServerErrorKind::BusyLoading) => true,
            _ => false,
        };
        if away && self.wanted == Backend::Auto {
            self.found.store(Backend::Module as u8, Ordering::Release);
        }
    }

    /// What a node has: one search at a time, and none when there was one since. It runs by itself:
    /// a call that is given up does not end it.
    async fn search(
        self: &Arc<Self>,
        key: &str,
        tried: Backend,
        since: u64,
    ) -> Result<Backend, Error> {
        let node = self.connection.node(key);
        let of_node = {
            let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
            searched.entry(node).or_default().clone()
        };
        let mut last = of_node.lock_owned().await;
        if *last > since {
            return Ok(self.found());
        }
        let (backends, key) = (self.clone(), key.to_owned());
        let search = tokio::spawn(async move {
            let node = Node {
                connection: &backends.connection,
                key: &key,
                script_sha: &backends.script_sha,
            };
            let chosen = choose(backends.wanted, tried, &node);
            let chosen = tokio::time::timeout(SEARCH_MAX, chosen).await;
            let found = chosen.unwrap_or_else(|_| Err(Error::away("no reply in time")))?;
            backends.found.store(found as u8, Ordering::Release);
            *last = backends.searches.fetch_add(1, Ordering::Release) + 1;
            Ok(found)
        });
        search.await.unwrap_or_else(|_| Err(Error::away("the runtime ends")))
    }
}

/// Whether the error proves that the call did not run: the command, the function or the script is
/// not there.
fn did_not_run(error: &RedisError, sent: &Command<'_>) -> bool {
    let (detail, command) = (error.detail().unwrap_or_default(), &*sent.words()[0]);
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoScript) => command == "EVALSHA",
        ErrorKind::Server(_) if command.starts_with("FCALL") && detail == NO_FUNCTION => true,
        ErrorKind::Server(_) if command.starts_with("RL.") || command.starts_with("FCALL") => {
            // Redis 6 puts other marks around the name. Without one, it is the library that speaks.
            let named = detail.strip_prefix("unknown command ").unwrap_or_default();
            let name = named.strip_prefix(['\'', '`']).unwrap_or_default();
            name.strip_prefix(command).is_some_and(|rest| rest.starts_with(['\'', '`']))
        }
        _ => false,
    }
}

/// Who is not let in is not let in another way either.
fn is_locked_out(error: &Error) -> bool {
    matches!(error, Error::Rejected { source } if source.code() == Some("NOAUTH"))
}

/// Whether it has no functions, or this user may not load any, or it is a replica: it takes a
/// script, to look.
fn takes_no_library(error: &Error) -> bool {
    match error {
        Error::Unavailable { source: Some(source), .. } => {
            source.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        }
        _ => error.is_mistake() && !is_locked_out(error),
    }
}

/// The first that is there. What was tried in vain is not tried again.
async fn choose(wanted: Backend, tried: Backend, node: &Node<'_>) -> Result<Backend, Error> {
    if wanted == Backend::Auto && tried != Backend::Module && node.has_module().await? {
        return Ok(Backend::Module);
    }
    if wanted != Backend::Script {
        match node.load_library().await {
            Ok(()) => return Ok(Backend::Functions),
            Err(error) if wanted == Backend::Auto && takes_no_library(&error) => {}
            Err(error) => return Err(error),
        }
    }
    node.load_script().await.map(|()| Backend::Script)
}

/// The node that a key is on.
struct Node<'a> {
    connection: &'a Wire,
    key: &'a str,
    script_sha: &'a str,
}

impl Node<'_> {
    async fn ask(&self, words: &[&str]) -> Result<Value, RedisError> {
        let command = Command::at(self.key, words.iter().map(|word| (*word).into()));
        self.connection.send(&command).await
    }

    /// Whatever the module answers, it is there; even that this user may not ask.
    async fn has_module(&self) -> Result<bool, Error> {
        let probe = protocol::probe(self.key);
        match self.connection.send(&probe).await {
            Ok(_) => Ok(true),
            Err(error) if did_not_run(&error, &probe) => Ok(false),
            Err(error) => match Error::from(error) {
                error if error.is_mistake() && !is_locked_out(&error) => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Loads ours, unless it is there, or a newer one that serves older callers. What is not there
    /// is loaded without REPLACE, so that nothing newer is lost that comes in between.
    async fn load_library(&self) -> Result<(), Error> {
        let ours = bundled_version();
        let mut left = LOADS_MAX;
        loop {
            left -= 1;
            let load = match self.ask(&["FCALL", "rl_version", "1", self.key]).await {
                Ok(reply) if version(&reply) >= ours => return Ok(()),
                Ok(_) => &["FUNCTION", "LOAD", "REPLACE", LIBRARY][..],
                Err(error) if error.detail() == Some(NO_FUNCTION) => {
                    &["FUNCTION", "LOAD", LIBRARY][..]
                }
                Err(error) => return Err(error.into()),
            };
            match self.ask(load).await {
                Ok(_) => return Ok(()),
                Err(error) if left > 0 && is_taken(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// By running it, which keeps it, and which everybody may who may use it. First by its name:
    /// whom the server does not know it refuses, and a text as long as the script ends the
    /// connection.
    async fn load_script(&self) -> Result<(), Error> {
        match self.ask(&["EVALSHA", self.script_sha, "1", self.key, "VERSION"]).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {}
            Err(error) => return Err(error.into()),
        }
        self.ask(&["EVAL", SCRIPT, "1", self.key, "VERSION"]).await?;
        Ok(())
    }
}

/// Whether a library of our name is there, ours or that of somebody else.
fn is_taken(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.starts_with("Library"))
}

/// `0.10.2` as numbers, the higher the newer.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map_while(|number| number.parse().ok()).collect()
}

fn version(reply: &Value) -> Vec<u64> {
    redis::from_redis_value_ref(reply).map(|text: String| numbers(&text)).unwrap_or_default()
}

fn bundled_version() -> Vec<u64> {
    let after =
        LIBRARY.split_once("\nlocal VERSION = '").and_then(|(_, rest)| rest.split_once('\''));
    after.map(|(version, _)| numbers(version)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_texts_are_those_of_the_repository() {
        let file = |name: &str| {
            let path = format!("{}/../../../functions/{name}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        assert_eq!(LIBRARY, file("redis_throttle.lua"));
        assert_eq!(SCRIPT, file("redis_throttle_script.lua"));
        assert_eq!(bundled_version().len(), 3);
    }

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.1"));
        assert!(numbers("1.0.0") > numbers("0.10.0"));
        assert!(numbers("unknown") < numbers("0.0.1"));
    }
}
