//! Finds the back end that the server has: the module, or else the library, as functions or as a
//! script. The limiter remembers the back end, and searches again when an error proves that a call
//! did not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use redis::{ErrorKind, RedisError, Script, ServerErrorKind, Value};
use tokio::sync::oneshot;

use crate::net::node::{Fault, Node};
use crate::net::pass::{Late, Pass};
use crate::wire::{command::Command, words};
use crate::{Backend, Error, Reason};

const LIBRARY: &str = include_str!("../redis_throttle.lua");
const SCRIPT: &str = include_str!("../redis_throttle_script.lua");

const NO_FUNCTION: &str = "Function not found";
/// The maximum number of times that a call is sent: at first, after another call's search, and
/// after its own search.
const TRIES_MAX: usize = 3;
/// The maximum number of attempts to load the library. An attempt fails if another client loads a
/// library between the version check and the load.
const LOADS_MAX: usize = 3;
/// The maximum duration of a search. A search may outlast the call that started it, because later
/// calls use its result.
const SEARCH_MAX: Duration = Duration::from_secs(1);

/// The chosen back end, and the number of searches so far. `Auto` means that no search has run yet.
#[derive(Debug, Clone, Copy)]
struct Choice {
    backend: Backend,
    searches: u64,
}

/// The back end to use.
pub(crate) struct Backends {
    wanted: Backend,
    script_sha: String,
    found: AtomicU8,
    searches: AtomicU64,
}

/// The way of a call whose turn has come.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub pass: &'a Pass,
    /// True if a redirection requires `ASKING` before the command.
    pub asking: bool,
    /// What gets a reply whose caller has gone.
    pub late: Option<&'a Late<'a>>,
}

/// The result of a command.
enum Outcome {
    Reply(Value),
    /// The command did not run, because of this error; `None` if it was not sent because no search
    /// has run yet.
    NotRun(Option<Fault>),
}

impl Backends {
    pub fn new(wanted: Backend) -> Self {
        let found = match wanted {
            Backend::Auto => Backend::Module,
            // An older library would reply too, so start with a search, which checks the version.
            Backend::Functions => Backend::Auto,
            one => one,
        };
        Self {
            wanted,
            script_sha: Script::new(SCRIPT).get_hash().to_owned(),
            found: AtomicU8::new(found as u8),
            searches: AtomicU64::new(0),
        }
    }

    /// Returns the back end in use.
    pub fn found(&self) -> Backend {
        let all = [Backend::Auto, Backend::Module, Backend::Functions, Backend::Script];
        all[usize::from(self.found.load(Ordering::Acquire))]
    }

    fn choice(&self) -> Choice {
        let searches = self.searches.load(Ordering::Acquire);
        Choice { backend: self.found(), searches }
    }

    /// Sends a command of the module to the back end in use. A call that did not run is sent again;
    /// a call that may have run is not.
    pub async fn send(
        self: &Arc<Self>,
        route: Route<'_>,
        command: &Command<'_>,
    ) -> Result<Value, Fault> {
        let tried = self.choice();
        let (mut backend, mut since) = (tried.backend, tried.searches);
        for _ in 1..TRIES_MAX {
            if let Outcome::Reply(reply) = self.attempt(route, command, backend).await? {
                return Ok(reply);
            }
            backend = self.search(route, command.key(), backend, since).await?;
            // Another call's search may have been for another node, so the next one is this call's
            // own.
            since = u64::MAX;
        }
        match self.attempt(route, command, backend).await? {
            Outcome::Reply(reply) => Ok(reply),
            // The back end that each search found was then missing. This is not temporary.
            Outcome::NotRun(Some(fault)) => Err(fault),
            Outcome::NotRun(None) => Err(Fault::lost()),
        }
    }

    async fn attempt(
        &self,
        route: Route<'_>,
        command: &Command<'_>,
        backend: Backend,
    ) -> Result<Outcome, Fault> {
        let written = match backend {
            Backend::Auto if command.words()[0].starts_with("RL.") => {
                return Ok(Outcome::NotRun(None));
            }
            // Every server knows the commands other than the module's, so they need no back end.
            Backend::Auto | Backend::Module => None,
            Backend::Functions => words::as_function(command),
            Backend::Script => words::as_script(command, &self.script_sha),
        };
        let written = written.map(|written| written.record_with(command));
        let sent = written.as_ref().unwrap_or(command);
        match route.pass.send(sent, route.asking, route.late).await {
            Ok(reply) => Ok(Outcome::Reply(reply)),
            Err(fault) if self.wanted != Backend::Module && did_not_run(&fault.error, sent) => {
                Ok(Outcome::NotRun(Some(fault)))
            }
            Err(fault) => {
                self.lost(&fault.error);
                Err(fault)
            }
        }
    }

    /// Makes the next call try the module first if the connection was lost, because the server may
    /// have been restarted with the module.
    fn lost(&self, error: &Error) {
        let is_down = error.by_driver().is_some_and(|error| match error.kind() {
            ErrorKind::Io => !error.is_timeout(),
            ErrorKind::Server(ServerErrorKind::BusyLoading) => true,
            _ => false,
        });
        if is_down && self.wanted == Backend::Auto {
            self.found.store(Backend::Module as u8, Ordering::Release);
        }
    }

    /// Finds the back end of the key's node. One search runs at a time per node. If a search with a
    /// number above `since` has ended, its result is reused. A search runs in its own task, so it
    /// continues when its call is abandoned.
    async fn search(
        self: &Arc<Self>,
        route: Route<'_>,
        key: &str,
        tried: Backend,
        since: u64,
    ) -> Result<Backend, Fault> {
        let found = route.pass.until_ended(async {
            let (backends, node, key) = (self.clone(), route.pass.node().clone(), key.to_owned());
            let (asking, (caller, found)) = (route.asking, oneshot::channel());
            // The task also waits for the lock: a caller that is not polled would keep it.
            tokio::spawn(async move {
                let mut last = node.searched.lock().await;
                let found = if *last > since {
                    Ok(backends.found())
                } else if caller.is_closed() {
                    return;
                } else {
                    let script_sha = &*backends.script_sha;
                    let target = Target { node: &node, asking, key: &key, script_sha };
                    let chosen = choose(backends.wanted, tried, &target);
                    let late = || Fault::uncounted(Error::unavailable(Reason::Overloaded));
                    let chosen = tokio::time::timeout(SEARCH_MAX, chosen).await;
                    chosen.unwrap_or_else(|_| Err(late())).inspect(|found| {
                        backends.found.store(*found as u8, Ordering::Release);
                        *last = backends.searches.fetch_add(1, Ordering::Release) + 1;
                    })
                };
                drop(last);
                let _ = caller.send(found);
            });
            // The task ends without a result if the runtime shuts down.
            found.await.unwrap_or_else(|_| Err(Fault::lost()))
        });
        found.await.unwrap_or_else(|ended| Err(Fault::uncounted(ended)))
    }
}

/// Returns true if the error proves that the call did not run: the command, the function or the
/// script is missing.
fn did_not_run(error: &Error, sent: &Command<'_>) -> bool {
    let Some(error) = error.by_driver() else { return false };
    let (detail, command) = (error.detail().unwrap_or_default(), &*sent.words()[0]);
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoScript) => command == "EVALSHA",
        ErrorKind::Server(_) if command.starts_with("FCALL") && detail == NO_FUNCTION => true,
        ErrorKind::Server(_) if command.starts_with("RL.") || command.starts_with("FCALL") => {
            // Redis 6 puts another quote before the name. If the text has another form, the error
            // comes from the library, so the call did run.
            let named = detail.strip_prefix("unknown command ").unwrap_or_default();
            let name = named.strip_prefix(['\'', '`']).unwrap_or_default();
            name.strip_prefix(command).is_some_and(|rest| rest.starts_with(['\'', '`']))
        }
        _ => false,
    }
}

/// Returns true if the user is not authenticated. Every back end rejects such a user.
fn is_locked_out(error: &Error) -> bool {
    matches!(error, Error::CommandRejected { source } if source.code() == Some("NOAUTH"))
}

/// Returns true if no library can be loaded: the server has no functions, it is a replica, or this
/// user may not load any. A script can still run; on a replica it can only read.
fn takes_no_library(error: &Error) -> bool {
    match error {
        Error::Unavailable { source: Some(source), .. } => {
            source.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        }
        _ => error.is_rejection() && !is_locked_out(error),
    }
}

/// Finds the first available back end. Skips the module if the module has just been tried.
async fn choose(wanted: Backend, tried: Backend, target: &Target<'_>) -> Result<Backend, Fault> {
    if wanted == Backend::Auto && tried != Backend::Module && target.has_module().await? {
        return Ok(Backend::Module);
    }
    if wanted != Backend::Script {
        match target.load_library().await {
            Ok(()) => return Ok(Backend::Functions),
            Err(fault) if wanted == Backend::Auto && takes_no_library(&fault.error) => {}
            Err(fault) => return Err(fault),
        }
    }
    target.load_script().await.map(|()| Backend::Script)
}

/// The node of a search. Its commands go to the node that has `key`.
struct Target<'a> {
    node: &'a Arc<Node>,
    asking: bool,
    key: &'a str,
    script_sha: &'a str,
}

impl Target<'_> {
    /// Sends a command with a deadline of its own, because a search may outlast a call.
    async fn send(&self, command: &Command<'_>) -> Result<Value, Fault> {
        self.node.command(command, self.asking, None).await
    }

    async fn query(&self, words: &[&str]) -> Result<Value, Fault> {
        self.send(&Command::at(self.key, words.iter().map(|word| (*word).into()))).await
    }

    /// Returns true if the server has the module, even if this user may not call it.
    async fn has_module(&self) -> Result<bool, Fault> {
        let probe = words::probe(self.key);
        match self.send(&probe).await {
            Ok(_) => Ok(true),
            Err(fault) if did_not_run(&fault.error, &probe) => Ok(false),
            Err(Fault { error, .. }) if error.is_rejection() && !is_locked_out(&error) => Ok(true),
            Err(fault) => Err(fault),
        }
    }

    /// Loads the bundled library, unless the server has the same or a newer one. A newer library
    /// serves older clients too. A missing library is loaded without REPLACE, so that the load does
    /// not replace a newer library that another client loads in the meantime.
    async fn load_library(&self) -> Result<(), Fault> {
        let ours = bundled_version();
        let mut left = LOADS_MAX;
        loop {
            left -= 1;
            let load = match self.query(&["FCALL", "rl_version", "1", self.key]).await {
                Ok(reply) if version(&reply) >= ours => return Ok(()),
                Ok(_) => &["FUNCTION", "LOAD", "REPLACE", LIBRARY][..],
                Err(fault) if detail(&fault) == Some(NO_FUNCTION) => {
                    &["FUNCTION", "LOAD", LIBRARY][..]
                }
                Err(fault) => return Err(fault),
            };
            match self.query(load).await {
                Ok(_) => return Ok(()),
                Err(fault) if left > 0 && is_taken(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Loads the script with EVAL, which also stores it and needs no permission beyond running the
    /// script. Sends EVALSHA first: to an unauthenticated user the server replies with an error;
    /// after the long text of EVAL it would close the connection.
    async fn load_script(&self) -> Result<(), Fault> {
        match self.query(&["EVALSHA", self.script_sha, "1", self.key, "VERSION"]).await {
            Ok(_) => return Ok(()),
            Err(fault) => {
                let kind = fault.error.by_driver().map(RedisError::kind);
                if kind != Some(ErrorKind::Server(ServerErrorKind::NoScript)) {
                    return Err(fault);
                }
            }
        }
        self.query(&["EVAL", SCRIPT, "1", self.key, "VERSION"]).await?;
        Ok(())
    }
}

fn detail(fault: &Fault) -> Option<&str> {
    fault.error.by_driver().and_then(RedisError::detail)
}

/// Returns true if a load failed because the server already has a library of this name, the
/// limiter's or a foreign one.
fn is_taken(fault: &Fault) -> bool {
    detail(fault).is_some_and(|text| text.starts_with("Library"))
}

/// Splits a version such as `0.10.2` into its numbers. Versions are compared as numbers.
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
    fn bundled_library_and_script_match_the_repository() {
        let file = |name: &str| {
            let path = format!("{}/../../../functions/{name}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        assert_eq!(LIBRARY, file("redis_throttle.lua"));
        assert_eq!(SCRIPT, file("redis_throttle_script.lua"));
        assert_eq!(bundled_version().len(), 3);
    }

    #[test]
    fn compares_versions_by_their_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.1"));
        assert!(numbers("1.0.0") > numbers("0.10.0"));
        assert!(numbers("unknown") < numbers("0.0.1"));
    }
}
