//! The commands of one connection: what drivers send when they connect, and the module's commands.

use super::database::Database;
use super::resp::Write as _;
use std::sync::Arc;

/// The version of the server whose replies these are, for drivers that compare it.
const VERSION: &str = "7.4.0";

/// The next step of the connection after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It reads the next command.
    Reads,
    /// It ends after the reply.
    Ends,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    database: Arc<Database>,
    id: i64,
    /// The version of the protocol, 2 or 3.
    protocol: u8,
    name: Vec<u8>,
}

impl Session {
    /// Begins a session.
    pub const fn new(database: Arc<Database>, id: i64) -> Self {
        Self { database, id, protocol: 2, name: Vec::new() }
    }

    /// Runs a command, and appends its reply to `to`.
    pub fn run(&mut self, words: &[&[u8]], to: &mut Vec<u8>) -> Next {
        let Some((name, args)) = words.split_first() else { return Next::Reads };
        let command = name.to_ascii_uppercase();
        match (command.as_slice(), args) {
            // A browser that a page of another site makes send commands in a request. A server ends
            // the connection too.
            (b"POST" | b"HOST:", _) => return Next::Ends,
            (b"QUIT", _) => {
                to.simple("OK");
                return Next::Ends;
            }
            (b"PING", []) => to.simple("PONG"),
            (b"PING" | b"ECHO", [text]) => to.bulk(text),
            // Every password is right, so that a configuration with one needs no change.
            (b"AUTH", [_] | [_, _]) => to.simple("OK"),
            (b"SELECT", [b"0"]) => to.simple("OK"),
            (b"SELECT", [_]) => to.error("ERR DB index is out of range"),
            (b"HELLO", args) => self.hello(args, to),
            (b"CLIENT", [subcommand, args @ ..]) => self.client(subcommand, args, to),
            (b"INFO", _) => to.bulk(info().as_bytes()),
            (b"COMMAND", [b"COUNT" | b"count"]) => to.integer(0),
            (b"COMMAND", _) => to.start('*', 0),
            (b"CLUSTER", _) => to.error("ERR This instance has cluster support disabled"),
            (b"PING" | b"ECHO" | b"AUTH" | b"SELECT" | b"CLIENT", _) => {
                let name = String::from_utf8_lossy(&command).to_lowercase();
                to.error(&format!("ERR wrong number of arguments for '{name}' command"));
            }
            _ => match self.database.run(words) {
                Ok(reply) => to.reply(&reply),
                Err(text) => to.error(&text),
            },
        }
        Next::Reads
    }

    /// Changes the protocol, and describes the server.
    fn hello(&mut self, args: &[&[u8]], to: &mut Vec<u8>) {
        let (protocol, mut options) = match args {
            [] => (self.protocol, args),
            [b"2", options @ ..] => (2, options),
            [b"3", options @ ..] => (3, options),
            _ => return to.error("NOPROTO unsupported protocol version"),
        };
        let mut name = None;
        while let [option, args @ ..] = options {
            options = match (option.to_ascii_uppercase().as_slice(), args) {
                (b"AUTH", [_, _, rest @ ..]) => rest,
                (b"SETNAME", [new, rest @ ..]) => {
                    name = Some(new.to_vec());
                    rest
                }
                _ => return to.error("ERR syntax error in HELLO"),
            };
        }
        self.protocol = protocol;
        self.name = name.unwrap_or_else(|| std::mem::take(&mut self.name));
        if protocol == 3 {
            to.start('%', 7)
        } else {
            to.start('*', 14)
        }
        for (field, text) in [("server", "redis"), ("version", VERSION)] {
            to.bulk(field.as_bytes());
            to.bulk(text.as_bytes());
        }
        for (field, integer) in [("proto", i64::from(protocol)), ("id", self.id)] {
            to.bulk(field.as_bytes());
            to.integer(integer);
        }
        for (field, text) in [("mode", "standalone"), ("role", "master")] {
            to.bulk(field.as_bytes());
            to.bulk(text.as_bytes());
        }
        to.bulk(b"modules");
        to.start('*', 0);
    }

    fn client(&mut self, subcommand: &[u8], args: &[&[u8]], to: &mut Vec<u8>) {
        match (subcommand.to_ascii_uppercase().as_slice(), args) {
            (b"ID", []) => to.integer(self.id),
            (b"SETINFO", [_, _]) => to.simple("OK"),
            (b"SETNAME", [name]) => {
                self.name = name.to_vec();
                to.simple("OK");
            }
            (b"GETNAME", []) if self.name.is_empty() => to.extend_from_slice(match self.protocol {
                3 => b"_\r\n",
                _ => b"$-1\r\n",
            }),
            (b"GETNAME", []) => to.bulk(&self.name),
            _ => {
                let name = String::from_utf8_lossy(&subcommand[..subcommand.len().min(128)]);
                let name = name.replace(['\r', '\n'], " ");
                to.error(&format!("ERR unknown subcommand '{name}'. Try CLIENT HELP."));
            }
        }
    }
}

/// Returns the reply of `INFO`: what drivers read in it before they send commands.
fn info() -> String {
    format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\n\
         redis_throttle_lab_version:{}\r\n\r\n# Persistence\r\nloading:0\r\n\r\n\
         # Replication\r\nrole:master\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(session: &mut Session, line: &str) -> (String, Next) {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        let mut reply = Vec::new();
        let next = session.run(&words, &mut reply);
        (String::from_utf8(reply).expect("UTF-8"), next)
    }

    fn session() -> Session {
        Session::new(Arc::default(), 7)
    }

    #[test]
    fn commands_of_a_handshake_have_the_replies_of_a_server() {
        let session = &mut session();
        for (line, expected) in [
            ("PING", "+PONG\r\n"),
            ("ping a", "$1\r\na\r\n"),
            ("ECHO a", "$1\r\na\r\n"),
            ("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"),
            ("AUTH secret", "+OK\r\n"),
            ("AUTH user secret", "+OK\r\n"),
            ("SELECT 0", "+OK\r\n"),
            ("SELECT 1", "-ERR DB index is out of range\r\n"),
            ("CLIENT GETNAME", "$-1\r\n"),
            ("client setname a", "+OK\r\n"),
            ("CLIENT GETNAME", "$1\r\na\r\n"),
            ("CLIENT SETINFO lib-name a", "+OK\r\n"),
            ("CLIENT ID", ":7\r\n"),
            ("CLIENT TRACKING on", "-ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.\r\n"),
            ("COMMAND", "*0\r\n"),
            ("COMMAND DOCS", "*0\r\n"),
            ("CLUSTER SLOTS", "-ERR This instance has cluster support disabled\r\n"),
            ("GET a", "-ERR unknown command 'GET', with args beginning with: 'a' \r\n"),
            ("RL.POLICY", "-ERR unknown command 'RL.POLICY', with args beginning with: \r\n"),
            ("RL.FIXED", "-ERR wrong number of arguments for 'rl.fixed' command\r\n"),
            ("rl.fixed k 1 1h", "*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n:3600000\r\n"),
            ("EXISTS k k other", ":2\r\n"),
            ("DEL k other", ":1\r\n"),
            ("PTTL k", ":-2\r\n"),
            ("RL.BLOCK k 1h", "+OK\r\n"),
            ("FLUSHALL", "+OK\r\n"),
            ("EXISTS k", ":0\r\n"),
        ] {
            assert_eq!(run(session, line), (expected.to_owned(), Next::Reads), "{line}");
        }
        assert_eq!(run(session, "QUIT"), ("+OK\r\n".to_owned(), Next::Ends));
        assert_eq!(run(session, "POST / HTTP/1.1"), (String::new(), Next::Ends));
    }

    #[test]
    fn hello_changes_the_protocol_and_names_the_connection() {
        let session = &mut session();
        let fields = |start: &str, protocol| {
            let head = "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n";
            let tail = "$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";
            format!(
                "{start}\r\n{head}$5\r\nproto\r\n:{protocol}\r\n$2\r\nid\r\n:7\r\n{tail}\
                 $7\r\nmodules\r\n*0\r\n"
            )
        };
        assert_eq!(run(session, "HELLO").0, fields("*14", 2));
        assert_eq!(run(session, "HELLO 3").0, fields("%7", 3));
        assert_eq!(run(session, "CLIENT GETNAME").0, "_\r\n");
        assert_eq!(run(session, "hello 2 auth user secret setname a").0, fields("*14", 2));
        assert_eq!(run(session, "CLIENT GETNAME").0, "$1\r\na\r\n");
        assert_eq!(run(session, "HELLO 4").0, "-NOPROTO unsupported protocol version\r\n");
        assert_eq!(run(session, "HELLO 3 SETNAME").0, "-ERR syntax error in HELLO\r\n");
        assert_eq!(run(session, "HELLO").0, fields("*14", 2), "a refused HELLO changes nothing");
    }
}
