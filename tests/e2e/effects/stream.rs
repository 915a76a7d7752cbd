//! The exact replication stream of every command, sent directly, in transactions, in scripts and in
//! functions.

use redis::Value;

use support::algorithms::SLIDINGLOG;
use support::replication::Effect;
use support::{ALGORITHMS, Algorithm, BASE_US, Client, ReplicationStream, Server, integers};

/// The ways in which the calls of one batch reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Multi,
    Eval,
    Fcall,
}

const WAYS: [Way; 4] = [Way::Plain, Way::Multi, Way::Eval, Way::Fcall];

/// The body of a script that makes each call of ARGV and reads the key after each of them.
const BODY: &str = "local seen = {} \
     for _, line in ipairs(args) do \
       local words = {} \
       for word in string.gmatch(line, '[^ ]+') do words[#words + 1] = word end \
       seen[#seen + 1] = redis.pcall(unpack(words)) \
       seen[#seen + 1] = redis.call('GET', keys[1]) \
       seen[#seen + 1] = redis.call('PEXPIRETIME', keys[1]) \
     end \
     return seen";

/// The reply of one call, and the state that the call left under the key.
struct Seen {
    reply: Value,
    state: Value,
    expiry_ms: Value,
}

/// Makes the calls, which all use the key `k`, and reads the key after each.
fn make(way: Way, client: &mut Client, calls: &[String]) -> Vec<Seen> {
    let looks = ["GET k", "PEXPIRETIME k"];
    let lines = || calls.iter().flat_map(|call| [call.as_str(), looks[0], looks[1]]);
    let replies = match way {
        Way::Plain => lines().map(|line| client.run(line)).collect(),
        Way::Multi => {
            client.ok("MULTI");
            lines().for_each(|line| drop(client.run(line)));
            array(client.run("EXEC"))
        }
        Way::Eval => {
            let script = format!("local keys, args = KEYS, ARGV {BODY}");
            let start = ["EVAL", &script, "1", "k"].map(str::to_owned);
            array(client.call(&[&start, calls].concat()))
        }
        Way::Fcall => {
            let start = ["FCALL", "make", "1", "k"].map(str::to_owned);
            array(client.call(&[&start, calls].concat()))
        }
    };
    let mut replies = replies.into_iter();
    let mut next = || replies.next().expect("three replies to each call");
    calls.iter().map(|_| Seen { reply: next(), state: next(), expiry_ms: next() }).collect()
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        other => panic!("no array: {other:?}"),
    }
}

fn load_function(client: &mut Client) {
    let code = format!(
        "#!lua name=stream\nredis.register_function('make', function(keys, args) {BODY} end)"
    );
    let loaded = client.call(&["FUNCTION", "LOAD", "REPLACE", code.as_str()]);
    assert_eq!(support::text(&loaded), "stream");
}

/// The effect that a call must send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sends {
    Nothing,
    /// `SET k state PXAT ms`, or `SET k state KEEPTTL` if the expiry is unchanged.
    Whole,
    /// `SETRANGE k offset entry`: writes an entry at the end of a log.
    Entry,
}

fn effect(sends: Sends, seen: &Seen, expiry_before: &Value) -> Option<Effect> {
    let (Value::BulkString(state), Value::Int(expiry_ms)) = (&seen.state, &seen.expiry_ms) else {
        assert_eq!(sends, Sends::Nothing, "{:?}: no state", seen.reply);
        return None;
    };
    let words = match sends {
        Sends::Nothing => return None,
        Sends::Whole if seen.expiry_ms == *expiry_before => {
            vec![b"SET".to_vec(), b"k".to_vec(), state.clone(), b"KEEPTTL".to_vec()]
        }
        Sends::Whole => {
            let expiry_ms = expiry_ms.to_string().into_bytes();
            vec![b"SET".to_vec(), b"k".to_vec(), state.clone(), b"PXAT".to_vec(), expiry_ms]
        }
        Sends::Entry => {
            let offset = state.len() - 12;
            let (at, entry) = (offset.to_string().into_bytes(), state[offset..].to_vec());
            vec![b"SETRANGE".to_vec(), b"k".to_vec(), at, entry]
        }
    };
    Some(words)
}

/// Adds MULTI and EXEC around the effects of a batch, if there are several effects and the calls
/// were not sent one by one.
fn framed(way: Way, effects: Vec<Effect>) -> Vec<Effect> {
    if way == Way::Plain || effects.len() < 2 {
        return effects;
    }
    let frame = |word: &str| vec![vec![word.as_bytes().to_vec()]];
    [frame("MULTI"), effects, frame("EXEC")].concat()
}

/// Makes the batch in this way, and compares the whole stream byte for byte.
fn assert_sends(
    way: Way,
    client: &mut Client,
    stream: &mut ReplicationStream,
    batch: &[(String, Option<i64>, Sends)],
) {
    let calls = batch.iter().map(|(call, ..)| call.clone()).collect::<Vec<_>>();
    let mut expiry_before = client.run("PEXPIRETIME k");
    let seen = make(way, client, &calls);
    let mut expected = Vec::new();
    for ((call, verdict, sends), seen) in batch.iter().zip(&seen) {
        let allowed = integers(&seen.reply).map(|reply| reply[0]);
        assert_eq!(allowed, *verdict, "{way:?} {call}: {:?}", seen.reply);
        expected.extend(effect(*sends, seen, &expiry_before));
        expiry_before = seen.expiry_ms.clone();
    }
    let sent = stream.effects(client);
    assert_eq!(sent, framed(way, expected), "{way:?} {calls:?}");
}

/// Returns one call of every kind on a key of five units per hour, with the effect that it must
/// send.
fn batch(algorithm: Algorithm) -> Vec<(String, Option<i64>, Sends)> {
    let call = algorithm.call("k", 5, "1h");
    let peek = algorithm.peek("k", 5, "1h");
    let later = if algorithm == SLIDINGLOG { Sends::Entry } else { Sends::Whole };
    let (yes, no) = (Some(1), Some(0));
    let other = ALGORITHMS.into_iter().find(|other| *other != algorithm).expect("another");
    vec![
        (peek.clone(), yes, Sends::Nothing),
        (format!("{call} COST 0"), yes, Sends::Nothing),
        (format!("{call} COST 6"), no, Sends::Nothing),
        ("RL.INSPECT k".to_owned(), None, Sends::Nothing),
        (format!("{call} COST 2"), yes, Sends::Whole),
        (peek.clone(), yes, Sends::Nothing),
        (call.clone(), yes, later),
        (format!("{call} COST 3"), no, Sends::Nothing),
        (format!("{call} COST many"), None, Sends::Nothing),
        (other.call("k", 5, "1h"), None, Sends::Nothing),
        ("RL.INSPECT k".to_owned(), None, Sends::Nothing),
        (format!("{call} COST 2"), yes, later),
        (call, no, Sends::Nothing),
        (peek, no, Sends::Nothing),
    ]
}

#[test]
fn every_command_sends_its_effect_byte_for_byte_however_it_is_called() {
    let server = Server::start();
    let mut client = server.client();
    load_function(&mut client);
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS {
        for way in WAYS {
            client.freeze(BASE_US);
            assert_sends(way, &mut client, &mut stream, &batch(algorithm));
            // The clock has stepped back: PEEK still sends nothing, and the denied call sends its
            // repair.
            client.advance_ms(-10_000_000);
            let (call, peek) = (algorithm.call("k", 5, "1h"), algorithm.peek("k", 5, "1h"));
            let repair = [
                (peek.clone(), Some(0), Sends::Nothing),
                (call.clone(), Some(0), Sends::Whole),
                (call, Some(0), Sends::Nothing),
                (peek, Some(0), Sends::Nothing),
            ];
            assert_sends(way, &mut client, &mut stream, &repair);
            client.integer("DEL k");
            stream.effects(&mut client);
        }
    }
}

#[test]
fn options_and_spellings_do_not_appear_in_the_stream() {
    let server = Server::start();
    let mut client = server.client();
    load_function(&mut client);
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    for way in WAYS {
        let batch = [
            ("rl.fixed k 0005 0060.0 aligned cost 2", Some(1), Sends::Whole),
            ("Rl.Fixed k 5 60000ms COST 1 ALIGNED", Some(1), Sends::Whole),
            ("RL.FIXED k 5 1m", Some(1), Sends::Whole),
            ("RL.PEEK k fixed 5 60 aligned", Some(1), Sends::Nothing),
            ("RL.FIXED k 5 60 COST 1 COST 1", None, Sends::Nothing),
        ];
        let batch = batch.map(|(call, verdict, sends)| (call.to_owned(), verdict, sends));
        assert_sends(way, &mut client, &mut stream, &batch);
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}

#[test]
fn log_that_drops_expired_entries_sends_itself_whole_once() {
    let server = Server::start();
    let mut client = server.client();
    load_function(&mut client);
    let mut stream = server.replication_stream();
    for way in WAYS {
        client.freeze(BASE_US);
        for _ in 0..4 {
            assert!(client.allows("RL.SLIDINGLOG k 10 10"));
            client.advance_ms(2_000);
        }
        // At 12 s, the entries of 0 s and 2 s have expired: half as many as remain.
        client.advance_ms(4_000);
        stream.effects(&mut client);
        let call = || "RL.SLIDINGLOG k 10 10".to_owned();
        let batch = [
            (call(), Some(1), Sends::Whole),
            (call(), Some(1), Sends::Entry),
            (call(), Some(1), Sends::Entry),
        ];
        assert_sends(way, &mut client, &mut stream, &batch);
        assert_eq!(client.integer("STRLEN k"), 12 + 3 * 12, "{way:?}: three entries");
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}

#[test]
fn discarded_transaction_sends_nothing() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 5, "1h");
        client.ok("MULTI");
        client.run(&call);
        client.ok("DISCARD");
        assert!(stream.effects(&mut client).is_empty(), "{call}: discarded");
        client.ok("WATCH k");
        assert!(other.allows(&call));
        client.ok("MULTI");
        client.run(&call);
        assert_eq!(client.run("EXEC"), Value::Nil, "{call}: what is watched has changed");
        assert_eq!(stream.effects(&mut client).len(), 1, "{call}: that of the other client");
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}
