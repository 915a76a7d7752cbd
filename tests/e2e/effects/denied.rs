//! A call that takes nothing has no side effect, and a call that takes something has only its
//! documented ones.

use redis::{PushInfo, PushKind, Value};

use support::calls::every_command;
use support::played::words;
use support::{ALGORITHMS, Algorithm, BASE_US, Client, ReplicationStream, Server, text};

/// The number of times a call that takes nothing is repeated.
const HAMMERING: usize = 5;

/// A key `k`, calls that take nothing from it, and a call that takes something and sends these
/// events. The clock runs, and the limits refill so slowly that the calls stay denied.
struct Row {
    before: String,
    silent: Vec<String>,
    loud: String,
    events: &'static [&'static str],
}

impl Row {
    fn new(before: &str, silent: &[&str], loud: &str, events: &'static [&'static str]) -> Self {
        let silent = silent.iter().map(|line| (*line).to_owned()).collect();
        Self { before: before.to_owned(), silent, loud: loud.to_owned(), events }
    }

    /// Takes two of three units: a call of cost 1 is then allowed, and one of cost 2 denied.
    fn of(algorithm: &Algorithm) -> Self {
        let [call, peek] = ["k", "absent"]
            .map(|key| [algorithm.call(key, 3, "366d"), algorithm.peek(key, 3, "366d")]);
        let [[call, peek], [absent, _]] = [call, peek];
        let silent = ["COST 2", "COST 4", "COST 0", "COST x"].map(|cost| format!("{call} {cost}"));
        let peeks = [peek.clone(), format!("{peek} COST 2"), "RL.INSPECT k".to_owned()];
        // Commands that decide open a missing key for writing, which is not a miss.
        let absent = ["COST 4", "COST 0", "COST x"].map(|cost| format!("{absent} {cost}"));
        let silent = silent.into_iter().chain(peeks).chain(absent).collect();
        Self { before: format!("{call} COST 2"), silent, loud: call, events: &["set k"] }
    }
}

fn rows() -> Vec<Row> {
    let mut rows: Vec<_> = ALGORITHMS.iter().map(Row::of).collect();
    rows.extend([
        Row::new(
            "RL.QUOTA k 5 year COST 5",
            &[
                "RL.QUOTA k 5 year",
                "RL.QUOTA k 5 year COST 6",
                "RL.QUOTA k 5 year COST 0",
                "RL.QUOTA k 5 year PARTIAL",
                "RL.QUOTA k 5 year COST x",
                "RL.PEEK k QUOTA 5 year",
                "RL.INSPECT k",
            ],
            "RL.REFUND k QUOTA 5 year",
            &["set k"],
        ),
        Row::new(
            "RL.LEASE k a 1 1h",
            &[
                "RL.LEASE k b 1 1h",
                "RL.PEEK k LEASE a 1 1h",
                "RL.RENEW k b 1h",
                "RL.RELEASE k b",
                "RL.INSPECT k",
            ],
            "RL.RENEW k a 2h",
            &["zadd k", "expire k"],
        ),
        Row::new(
            "RL.BLOCK k 1h",
            &[
                "RL.GCRA k 5 5 60",
                "RL.LEASE k a 1 1h",
                "RL.CHARGE k GCRA 5 5 60",
                "RL.REFUND k GCRA 5 5 60",
                "CL.THROTTLE k 1 2 60",
            ],
            "RL.BLOCK k 2h",
            &["set k"],
        ),
        Row::new(
            "RL.FIXED k 9 1h",
            &[
                "RL.ALL k \"FIXED 9 1h\" absent \"FIXED 1 1h COST 2\"",
                "RL.PEEKALL k \"FIXED 9 1h\"",
            ],
            "RL.ALL k \"FIXED 9 1h\"",
            &["set k"],
        ),
    ]);
    // Nothing is repaired after the clock stepped back: these states cannot show the step.
    rows.extend(["CL.THROTTLE k 1 2 30000000", "GCRA k 1 2 30000000"].map(|call| {
        let more = if call.starts_with('G') { "TOKENS " } else { "" };
        let [none, two, three] = [0, 2, 3].map(|units| format!("{call} {more}{units}"));
        let back = "RL.DEBUG CLOCK ADVANCE -1h";
        // GCRA has no call of cost 0.
        let none = if more.is_empty() { none } else { three.clone() };
        Row::new(call, &[&two, &three, &none, back, &two, &none], call, &["set k"])
    }));
    rows
}

/// Clients that notice a change of the keys `k` and `absent`.
struct Observers {
    /// Has a WATCH on the keys.
    watcher: Client,
    /// Tracks the keys that it has read.
    tracker: Client,
    /// Tracks all keys.
    broadcast: Client,
    subscriber: Client,
    replica: ReplicationStream,
}

/// Returns the keys whose caches the server invalidated.
fn invalidations(pushes: &[PushInfo]) -> Vec<String> {
    let sent = pushes.iter().filter(|push| push.kind == PushKind::Invalidate);
    let keys = sent.flat_map(|push| match push.data.first() {
        Some(Value::Array(keys)) => keys.iter().map(text).collect(),
        _ => vec!["everything".to_owned()],
    });
    keys.collect()
}

/// Returns the keyspace events that a subscriber received, as `event key`.
fn events(subscriber: &mut Client) -> Vec<String> {
    let pushes = subscriber.pushed();
    let messages = pushes.iter().filter(|push| push.kind == PushKind::PMessage);
    let events = messages.map(|push| {
        let channel = text(&push.data[1]);
        let event = channel.strip_prefix("__keyevent@0__:").expect("a key event").to_owned();
        format!("{event} {}", text(&push.data[2]))
    });
    events.collect()
}

impl Observers {
    fn of(server: &Server) -> Self {
        let [mut tracker, mut broadcast, mut subscriber] = [(); 3].map(|()| server.client3());
        tracker.ok("CLIENT TRACKING ON");
        broadcast.ok("CLIENT TRACKING ON BCAST");
        subscriber.subscribe("__keyevent@0__:*");
        let replica = server.replication_stream();
        Self { watcher: server.client(), tracker, broadcast, subscriber, replica }
    }

    /// Makes a call. Returns the events if all observers noticed it, and `None` if none did.
    fn notice(&mut self, client: &mut Client, call: &str) -> Option<Vec<String>> {
        self.replica.effects(client);
        self.broadcast.pushed();
        self.tracker.run("MGET k");
        self.tracker.run("EXISTS k");
        self.tracker.pushed();
        self.watcher.ok("WATCH k absent");
        events(&mut self.subscriber);
        let (contents, changes) = (client.contents(), client.changes());
        client.call(&words(call));
        let events = events(&mut self.subscriber);
        let [tracked, broadcast] =
            [&mut self.tracker, &mut self.broadcast].map(|one| invalidations(&one.pushed()));
        let noticed = [
            client.contents() != contents,
            client.changes() > changes,
            !self.replica.effects(client).is_empty(),
            tracked == ["k"],
            broadcast == ["k"],
            !events.is_empty(),
            {
                self.watcher.ok("MULTI");
                self.watcher.run("PING");
                self.watcher.run("EXEC") == Value::Nil
            },
        ];
        assert!(noticed.iter().all(|one| *one == noticed[0]), "{call}: {noticed:?} {events:?}");
        noticed[0].then_some(events)
    }
}

#[test]
fn call_that_takes_nothing_is_noticed_by_no_one_and_one_that_takes_something_by_all() {
    // All classes of events, including misses of keys.
    let server = every_command().line("notify-keyspace-events EAm").start();
    let mut client = server.client();
    let mut observers = Observers::of(&server);
    for Row { before, silent, loud, events } in rows() {
        client.integer("RL.DEBUG CLOCK RESUME");
        let first = observers.notice(&mut client, &before);
        assert!(first.is_some(), "{before}");
        for call in (0..HAMMERING).flat_map(|_| &silent) {
            assert_eq!(observers.notice(&mut client, call), None, "{call}");
        }
        client.integer("RL.DEBUG CLOCK RESUME");
        let noticed = observers.notice(&mut client, &loud).unwrap_or_default();
        assert_eq!(noticed, events, "{loud}");
        client.integer("DEL k");
    }
}

#[test]
fn repeating_a_denied_call_never_extends_its_wait() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.freeze(BASE_US);
        let call = algorithm.call("k", 4, "10");
        let mut denied = client.decide(&format!("{call} COST 4"));
        while denied[0] == 1 {
            denied = client.decide(&call);
        }
        let retry_ms = denied[3];
        for left_ms in (1..=retry_ms).rev().step_by(97) {
            client.freeze(BASE_US + (retry_ms - left_ms) * 1_000);
            assert_eq!(client.decide(&call)[3], left_ms, "{call}");
        }
        client.freeze(BASE_US + retry_ms * 1_000);
        assert!(client.allows(&call), "{call}");
        client.integer("DEL k");
    }
}
