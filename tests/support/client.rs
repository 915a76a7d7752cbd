//! A connection that returns raw replies, so that no conversion hides a reply of the wrong type.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};

use redis::{
    Cmd, Connection, ConnectionAddr, ConnectionLike as _, IntoConnectionInfo as _, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisResult, Value,
};

use super::BASE_US;
use super::poll::{DEADLINE, eventually};

/// The five integers of a reply: allowed, limit, remaining, retry after, reset after.
pub type Reply = [i64; 5];

/// The number of calls sent before their replies are read, so few that the socket buffers the
/// replies.
const PIPELINE_CHUNK: usize = 200;

const LONGEST_STEP_MS: i64 = 366 * 86_400_000;

pub struct Client {
    connection: Connection,
    pushes: Receiver<PushInfo>,
}

impl Client {
    /// Opens a connection. Every read has a deadline, so that a hung server fails the test.
    pub fn try_connect(socket: &Path, protocol: ProtocolVersion) -> RedisResult<Self> {
        let settings = RedisConnectionInfo::default().set_protocol(protocol);
        let information = ConnectionAddr::Unix(socket.to_owned())
            .into_connection_info()?
            .set_redis_settings(settings.set_skip_set_lib_name());
        let mut connection = redis::Client::open(information)?.get_connection()?;
        connection.set_read_timeout(Some(DEADLINE))?;
        let (sender, pushes) = mpsc::channel();
        connection.set_push_sender(sender);
        Ok(Self { connection, pushes })
    }

    /// Returns true if the server replies to PING; false while it is loading.
    pub fn try_ping(&mut self) -> bool {
        let reply = self.connection.req_packed_command(&pack(&["PING"]));
        matches!(reply, Ok(Value::SimpleString(pong)) if pong == "PONG")
    }

    /// Sends one command and returns the raw reply, which may be an error.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Value {
        let reply = self.connection.req_packed_command(&pack(arguments));
        reply.unwrap_or_else(|error| panic!("{}: {error}", format_call(arguments)))
    }

    /// Sends one command on a connection that may be broken.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> RedisResult<Value> {
        self.connection.req_packed_command(&pack(arguments))
    }

    /// Sends one command, given as a line whose arguments are separated by spaces.
    pub fn run(&mut self, line: &str) -> Value {
        self.call(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Sends one command, given as a line, from a script.
    pub fn run_in_script(&mut self, line: &str) -> Value {
        let script = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";
        let words = line.split_whitespace().collect::<Vec<_>>();
        self.call(&[&["EVAL", script, "1", words[1], words[0]], &words[2..]].concat())
    }

    /// Sends many commands at once and returns their raw replies in order.
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, calls: &[Vec<A>]) -> Vec<Value> {
        let mut replies = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(PIPELINE_CHUNK) {
            let packed = chunk.iter().flat_map(|call| pack(call)).collect::<Vec<_>>();
            self.connection.send_packed_command(&packed).expect("the server reads");
            for call in chunk {
                let reply = self.connection.recv_response();
                replies
                    .push(reply.unwrap_or_else(|error| panic!("{}: {error}", format_call(call))));
            }
        }
        replies
    }

    /// Returns the five integers of a call that decides; any other reply fails the test.
    pub fn decide(&mut self, line: &str) -> Reply {
        let value = self.run(line);
        integers(&value).unwrap_or_else(|| panic!("{line}: no decision: {value:?}"))
    }

    /// Returns true if the call is allowed.
    pub fn allows(&mut self, line: &str) -> bool {
        self.decide(line)[0] == 1
    }

    /// Returns the error text of a call, which must fail.
    pub fn error(&mut self, line: &str) -> String {
        let value = self.run(line);
        raw_error(&value).unwrap_or_else(|| panic!("{line}: no error: {value:?}"))
    }

    /// Makes a call that must reply `OK`.
    pub fn ok(&mut self, line: &str) {
        assert_eq!(self.run(line), Value::Okay, "{line}");
    }

    /// Queues a command, which must reply `QUEUED`, in a transaction.
    pub fn ok_queued(&mut self, words: &[&str]) {
        assert_eq!(text(&self.call(words)), "QUEUED", "{words:?}");
    }

    pub fn integer(&mut self, line: &str) -> i64 {
        match self.run(line) {
            Value::Int(number) => number,
            other => panic!("{line}: no integer: {other:?}"),
        }
    }

    /// Returns the value of a bulk string reply, for example of GET.
    pub fn bytes(&mut self, line: &str) -> Vec<u8> {
        match self.run(line) {
            Value::BulkString(bytes) => bytes,
            other => panic!("{line}: no bulk string: {other:?}"),
        }
    }

    /// Returns the value and the expiry of a key, to compare them before and after a call.
    pub fn snapshot(&mut self, key: &str) -> (Value, i64) {
        (self.call(&["DUMP", key]), self.integer(&format!("PEXPIRETIME {key}")))
    }

    /// Returns all keys of the database, sorted, with their DUMP and expiry.
    pub fn contents(&mut self) -> Vec<(Vec<u8>, Value, i64)> {
        let Value::Array(keys) = self.run("KEYS *") else { panic!("no keys") };
        let mut keys = keys
            .into_iter()
            .map(|key| match key {
                Value::BulkString(key) => key,
                other => panic!("no key: {other:?}"),
            })
            .collect::<Vec<_>>();
        keys.sort();
        let looks = keys.iter().flat_map(|key| {
            [b"DUMP".as_slice(), b"PEXPIRETIME"].map(|look| vec![look, key.as_slice()])
        });
        let mut replies = self.pipeline(&looks.collect::<Vec<_>>()).into_iter();
        let mut next = || replies.next().expect("two replies to each key");
        let rows = keys.iter().map(|key| match (next(), next()) {
            (dump, Value::Int(expiry_ms)) => (key.clone(), dump, expiry_ms),
            (_, other) => panic!("PEXPIRETIME: {other:?}"),
        });
        rows.collect()
    }

    /// Returns one section of INFO as a map.
    pub fn info(&mut self, section: &str) -> HashMap<String, String> {
        let reply = text(&self.call(&["INFO", section]));
        let fields = reply.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns true if the server lists the subcommands of `RL.POLICY`. Only Valkey 8.1 does not:
    /// see `api::frees_subcommands`.
    pub fn knows_subcommands(&mut self) -> bool {
        let server = self.info("server");
        !server.get("valkey_version").is_some_and(|version| version.starts_with("8.1."))
    }

    /// Returns a numeric field of one section of INFO.
    pub fn info_number(&mut self, section: &str, field: &str) -> i64 {
        let fields = self.info(section);
        let value = fields.get(field).unwrap_or_else(|| panic!("INFO {section}: no {field}"));
        value.parse().unwrap_or_else(|_| panic!("{field} is no number: {value}"))
    }

    /// Returns the number of changes since the last save, as the server counts them.
    pub fn changes(&mut self) -> i64 {
        self.info_number("persistence", "rdb_changes_since_last_save")
    }

    /// Returns the server's real time in microseconds, which the module's clock does not affect.
    pub fn server_time_us(&mut self) -> i64 {
        match self.run("TIME") {
            Value::Array(parts) => {
                let part = |at: usize| text(&parts[at]).parse::<i64>().expect("a number");
                part(0) * 1_000_000 + part(1)
            }
            other => panic!("TIME: {other:?}"),
        }
    }

    /// Waits for a cron of the server that starts after this call, by a key that only the cron
    /// removes.
    pub fn wait_for_cron(&mut self) {
        let expired = self.info_number("stats", "expired_keys");
        self.ok("SET wait-for-cron 1 PX 1");
        eventually("a cron runs", || {
            (self.info_number("stats", "expired_keys") > expired).then_some(())
        });
    }

    /// Freezes the module's clock at this Unix time in microseconds.
    pub fn freeze(&mut self, unix_us: i64) {
        assert_eq!(self.integer(&format!("RL.DEBUG CLOCK FREEZE {unix_us}")), unix_us);
    }

    /// Moves the frozen clock; a negative number moves it back.
    pub fn advance_ms(&mut self, ms: i64) {
        let mut left = ms;
        while left != 0 {
            // One step is a duration, which may be at most 366 days.
            let step = left.clamp(-LONGEST_STEP_MS, LONGEST_STEP_MS);
            self.integer(&format!("RL.DEBUG CLOCK ADVANCE {step}ms"));
            left -= step;
        }
    }

    /// Returns the keyspace events and invalidations pushed to this RESP3 connection since the last
    /// call. The reply to PING comes after them, so none is still being sent.
    pub fn pushed(&mut self) -> Vec<PushInfo> {
        assert!(self.try_ping());
        self.pushes.try_iter().collect()
    }

    /// Subscribes this RESP3 connection to a pattern.
    pub fn subscribe(&mut self, pattern: &str) {
        self.connection.psubscribe_resp3(pattern).expect("a RESP3 connection");
        assert_eq!(self.pushed().len(), 1, "the confirmation and nothing else");
    }
}

/// Makes the calls of a table (ms after [`BASE_US`], call, expected reply) on a frozen clock.
pub fn play(client: &mut Client, table: &[(i64, &str, Reply)]) {
    for (row, (at_ms, call, expected)) in table.iter().enumerate() {
        client.freeze(BASE_US + at_ms * 1000);
        assert_eq!(client.decide(call), *expected, "row {row}: {call} at {at_ms} ms");
    }
}

/// Returns the five integers of a reply that is an array of exactly five integers.
pub fn integers(value: &Value) -> Option<Reply> {
    let Value::Array(fields) = value else { return None };
    let numbers = fields.iter().map(|field| match field {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// Returns the text of an error as the server sent it. The client library splits off the first
/// word.
pub fn raw_error(value: &Value) -> Option<String> {
    let Value::ServerError(error) = value else { return None };
    Some(match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    })
}

/// Returns the text of a reply of any text type.
pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Okay => "OK".to_owned(),
        other => panic!("no text: {other:?}"),
    }
}

fn pack<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut command = Cmd::new();
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command.get_packed_command()
}

/// Formats a call for an error message, and truncates long arguments.
fn format_call<A: AsRef<[u8]>>(arguments: &[A]) -> String {
    let words = arguments.iter().take(12).map(|argument| {
        let bytes = argument.as_ref();
        String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned()
    });
    words.collect::<Vec<_>>().join(" ")
}
