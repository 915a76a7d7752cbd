//! One server: its name and its open connection, on which one command runs at a time.

use super::deadline::Deadline;
use super::log::{LastState, write};
use redis::{Client, Cmd, Connection, ConnectionInfo, RedisResult};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// The maximum length of a logged reason. The reason may be a text that the server sent.
const REASON_MOST_CHARS: usize = 200;

/// A server that is queried at every scrape.
pub struct Server {
    /// `host:port`, or the path of a socket; never contains a user or password.
    pub name: String,
    client: Client,
    connection: Mutex<Option<Connection>>,
    /// True while a thread is querying the server or parsing its reply.
    busy: AtomicBool,
    last_state: LastState,
}

/// The reply of a server, or the reason for its absence.
pub type Reply = Result<String, String>;

impl Server {
    /// Creates a server without connecting to it yet.
    ///
    /// # Errors
    ///
    /// Returns a reason that does not contain the URL.
    pub fn new(information: ConnectionInfo) -> Result<Arc<Self>, String> {
        let name = information.addr().to_string();
        // The driver must not send CLIENT SETINFO: a user with only RL.METRICS may not call it, and
        // each denied call on a new connection would add an entry to ACL LOG.
        let settings = information.redis_settings().clone().set_skip_set_lib_name();
        let information = information.set_redis_settings(settings);
        let client =
            Client::open(information).map_err(|_| format!("{name} is not a usable address"))?;
        Ok(Arc::new(Self {
            name,
            client,
            connection: Mutex::new(None),
            busy: AtomicBool::new(false),
            last_state: LastState::default(),
        }))
    }

    /// Returns the connection parameters.
    pub fn information(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    /// Logs that the server is up, or down and why, if that has changed since the last log line.
    pub fn log(&self, reply: &Result<(), String>) {
        if self.last_state.changes(reply) {
            match reply {
                Err(reason) => write(&format!("{} is down: {reason}", self.name)),
                Ok(()) => write(&format!("{} is up", self.name)),
            }
        }
    }

    /// Runs a command on the kept connection. Opens a new connection if there is none, or if the
    /// server has closed the kept one.
    fn run(&self, command: &Cmd, timeout: Duration) -> Reply {
        let mut kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = match kept.take() {
            Some(connection) => match query(connection, command, &mut kept) {
                // The server was restarted or has closed an idle connection. This is not worth a
                // log line.
                Err(error) if error.is_connection_dropped() && !error.is_timeout() => {
                    self.connect(timeout).and_then(|new| query(new, command, &mut kept))
                }
                reply => reply,
            },
            None => self.connect(timeout).and_then(|new| query(new, command, &mut kept)),
        };
        reply.map_err(|error| {
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

/// Runs a command, and keeps the connection in `kept` if the server replied, even with an error.
/// After any other failure the connection is dropped, because it may hold half a reply.
fn query(
    mut connection: Connection,
    command: &Cmd,
    kept: &mut Option<Connection>,
) -> RedisResult<String> {
    let reply = command.query(&mut connection);
    if reply.as_ref().map_or_else(|error| error.code().is_some(), |_| true) {
        *kept = Some(connection);
    }
    reply
}

/// The exclusive right of one thread to query a server. Dropping it lets another thread query it.
struct Turn(Arc<Server>);

impl Turn {
    fn take(server: &Arc<Server>) -> Option<Self> {
        (!server.busy.swap(true, AcqRel)).then(|| Self(Arc::clone(server)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.busy.store(false, Release);
    }
}

/// Queries all servers at once and parses their replies. Each server has a thread of its own, which
/// holds no lock of another server. Waits at most `timeout` for all threads together. A thread that
/// is late, because its server sends slowly or its name resolver does not reply, runs on. Until it
/// ends, no second thread queries the same server. `parse` must end soon after its deadline.
///
/// Returns the result of `parse` for each server, with the time until the reply was parsed.
pub fn query_all<T: Send + 'static>(
    servers: &[Arc<Server>],
    command: &Cmd,
    timeout: Duration,
    parse: impl Fn(&Server, String, Deadline) -> Result<T, String> + Clone + Send + 'static,
) -> Vec<(Result<T, String>, Duration)> {
    let deadline = Deadline::after(timeout);
    let late = || (Err(format!("no reply within {} ms", timeout.as_millis())), timeout);
    let mut replies: Vec<_> = servers.iter().map(|_| late()).collect();
    let (sender, receiver) = mpsc::channel();
    for (index, server) in servers.iter().enumerate() {
        let Some(turn) = Turn::take(server) else {
            replies[index] = (Err("still no reply to an earlier scrape".to_owned()), timeout);
            continue;
        };
        let (command, parse, sender) = (command.clone(), parse.clone(), sender.clone());
        let spawned = thread::Builder::new().spawn(move || {
            // `turn` is dropped before `sender`, even if `parse` panics, so that the next scrape
            // can query it again.
            let turn = turn;
            let server = &turn.0;
            let parsed = server.run(&command, timeout).and_then(|text| {
                // This error is the server's result, unless the parsed reply arrives in time and
                // replaces it.
                let _ = sender.send((index, Err(deadline.unparsed()), timeout));
                parse(server, text, deadline)
            });
            drop(turn);
            // Fails if the result is too late for the page.
            let _ = sender.send((index, parsed, deadline.elapsed()));
        });
        if let Err(error) = spawned {
            replies[index] = (Err(format!("cannot start a thread: {error}")), Duration::ZERO);
        }
    }
    // From here on only the threads have a sender. The channel closes when the last thread ends.
    drop(sender);
    while let Ok((index, reply, took)) = receiver.recv_timeout(deadline.left()) {
        replies[index] = (reply, took);
    }
    replies
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo as _;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Condvar;

    /// A deadline longer than any passing test takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns a server that replies `PONG` to every command.
    fn server() -> Arc<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("an address"));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
                        let _ = stream.write_all(b"+PONG\r\n");
                    }
                });
            }
        });
        Server::new(url.into_connection_info().expect("a URL")).expect("a server")
    }

    fn ping() -> Cmd {
        redis::cmd("PING")
    }

    #[test]
    fn query_all_parses_the_replies_of_two_servers_at_the_same_time() {
        let parsers = Arc::new((Mutex::new(0), Condvar::new()));
        let servers = [server(), server()];
        let replies = query_all(&servers, &ping(), PATIENCE, move |_, text, deadline| {
            // Ends only after the parser of the other server has begun.
            let (count, changed) = &*parsers;
            let mut begun = count.lock().expect("a count");
            *begun += 1;
            changed.notify_all();
            let waited = changed.wait_timeout_while(begun, deadline.left(), |begun| *begun < 2);
            if waited.expect("a count").1.timed_out() { Err(deadline.unparsed()) } else { Ok(text) }
        });
        for (reply, _) in replies {
            assert_eq!(reply.as_deref(), Ok("PONG"));
        }
    }

    #[test]
    fn query_all_gives_one_deadline_to_the_parsers_of_all_servers() {
        let parse = |_: &Server, _, deadline| Ok(deadline);
        let replies = query_all(&[server(), server()], &ping(), PATIENCE, parse);
        assert!(replies[0].0.is_ok(), "{replies:?}");
        // A deadline that began with the reply would differ from server to server.
        assert_eq!(replies[0].0, replies[1].0);
    }

    #[test]
    fn query_all_reports_a_reply_as_not_parsed_when_its_parser_panics() {
        let servers = [server(), server()];
        let odd = servers[0].name.clone();
        let parse = move |server: &Server, text, _| {
            assert_ne!(server.name, odd, "a parser that panics");
            Ok(text)
        };
        // The second round shows that the thread that panicked dropped its `Turn`: the server is
        // queried again.
        for _ in 0..2 {
            let replies = query_all(&servers, &ping(), PATIENCE, parse.clone());
            let expected = Err("its reply was not parsed within 60000 ms");
            assert_eq!(replies[0].0.as_ref().map(String::as_str).map_err(String::as_str), expected);
            assert_eq!(replies[1].0.as_deref(), Ok("PONG"));
        }
    }
}
