//! One server: its name, one connection that is kept, one command at a time.

use super::log::{Told, say};
use redis::{Client, Cmd, Connection, ConnectionInfo, RedisResult};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The longest reason that is logged: it may be a text of the server's.
const REASON_MOST_CHARS: usize = 200;

/// A server that is asked again and again.
pub struct Server {
    /// `host:port`, or the path of a socket: never user or password.
    pub name: String,
    client: Client,
    connection: Mutex<Option<Connection>>,
    /// Whether an answer is still being waited for.
    busy: AtomicBool,
    told: Told,
}

/// What a server answered, or why it did not, in words.
pub type Answer = Result<String, String>;

impl Server {
    /// A server that nobody has connected to yet.
    ///
    /// # Errors
    ///
    /// In words, without the URL.
    pub fn new(information: ConnectionInfo) -> Result<Arc<Self>, String> {
        let name = information.addr().to_string();
        // Without CLIENT SETINFO, which a user who may call RL.METRICS alone is refused: each such
        // call of a new connection is an entry of ACL LOG.
        let settings = information.redis_settings().clone().set_skip_set_lib_name();
        let information = information.set_redis_settings(settings);
        let client = Client::open(information)
            .map_err(|_| format!("{name} is an address that cannot be used"))?;
        Ok(Arc::new(Self {
            name,
            client,
            connection: Mutex::new(None),
            busy: AtomicBool::new(false),
            told: Told::default(),
        }))
    }

    /// How it is connected to.
    pub fn information(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    /// Logs whether the server is up, when that is not what was logged before.
    pub fn tell(&self, answer: &Result<(), String>) {
        if self.told.changes(answer) {
            match answer {
                Err(reason) => say(&format!("{} is down: {reason}", self.name)),
                Ok(()) => say(&format!("{} is up", self.name)),
            }
        }
    }

    /// Asks on the connection that is there, or on a new one when there is none or it is gone.
    fn ask(&self, command: &Cmd, timeout: Duration) -> Answer {
        let mut kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match kept.take() {
            Some(connection) => match query(connection, command, &mut kept) {
                // The server was restarted, or has closed what was idle: that is no news.
                Err(error) if error.is_connection_dropped() && !error.is_timeout() => {
                    self.connect(timeout).and_then(|new| query(new, command, &mut kept))
                }
                answer => answer,
            },
            None => self.connect(timeout).and_then(|new| query(new, command, &mut kept)),
        };
        answer.map_err(|error| {
            let reason = error.to_string();
            reason.escape_debug().take(REASON_MOST_CHARS).collect()
        })
    }

    fn connect(&self, timeout: Duration) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        Ok(connection)
    }
}

/// Keeps a connection that answered, even with an error; any other holds half an answer.
fn query(
    mut connection: Connection,
    command: &Cmd,
    kept: &mut Option<Connection>,
) -> RedisResult<String> {
    let answer = command.query(&mut connection);
    if answer.as_ref().map_or_else(|error| error.code().is_some(), |_| true) {
        *kept = Some(connection);
    }
    answer
}

/// Asks all of these at once, and waits no longer than `timeout` for them together, whatever they
/// do: one that trickles, or whose name no resolver answers for, is left to its thread. As long as
/// that waits, the server gets no second one. Each answer comes with the time it took.
pub fn ask_all(
    servers: &[Arc<Server>],
    command: &Cmd,
    timeout: Duration,
) -> Vec<(Answer, Duration)> {
    let started = Instant::now();
    let late = || (Err(format!("no answer within {} ms", timeout.as_millis())), timeout);
    let mut answers: Vec<_> = servers.iter().map(|_| late()).collect();
    let (sender, receiver) = mpsc::channel();
    let mut waiting = 0;
    for (index, server) in servers.iter().enumerate() {
        if server.busy.swap(true, AcqRel) {
            answers[index] = (Err("still no answer to an earlier scrape".to_owned()), timeout);
            continue;
        }
        let (own, command, sender) = (Arc::clone(server), command.clone(), sender.clone());
        let spawned = thread::Builder::new().spawn(move || {
            let answer = own.ask(&command, timeout);
            own.busy.store(false, Release);
            // Nobody listens any more when it came too late.
            let _ = sender.send((index, answer, started.elapsed()));
        });
        match spawned {
            Ok(_) => waiting += 1,
            Err(error) => {
                server.busy.store(false, Release);
                answers[index] = (Err(format!("no thread to ask with: {error}")), Duration::ZERO);
            }
        }
    }
    for _ in 0..waiting {
        let left = timeout.saturating_sub(started.elapsed());
        let Ok((index, answer, took)) = receiver.recv_timeout(left) else { break };
        answers[index] = (answer, took);
    }
    answers
}
