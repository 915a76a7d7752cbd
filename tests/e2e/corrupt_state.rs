//! States that nobody but a forger wrote: refused, or decided on as RL.INSPECT shows them.
//!
//! Where INSPECT reads a state, a model of the six algorithms in this folder foretells the
//! reply from the fields shown; where it reads none, every command answers WRONGTYPE.

use redis::Value;

use crate::support::fuzz;
use crate::support::model::{self, Fields};
use crate::support::{
    ALGORITHMS, Algorithm, BASE_US, Client, Random, Server, WRONGTYPE, integers, raw_error, text,
};

const NOT_A_STATE: &str = "WRONGTYPE the key does not hold a rate limiter's state";

type Call = Vec<Vec<u8>>;

fn words(line: &str) -> Call {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn call(parts: &[&[u8]]) -> Call {
    parts.iter().map(|part| part.to_vec()).collect()
}

/// The name and the fields that INSPECT shows, from RESP2's flat array.
fn inspected(reply: &Value) -> Option<(Algorithm, Fields)> {
    let Value::Array(flat) = reply else { return None };
    let name = text(&flat[1]);
    let algorithm = ALGORITHMS.into_iter().find(|algorithm| algorithm.name == name)?;
    let fields = flat[2..].chunks(2).map(|pair| match pair[1] {
        Value::Int(number) => (text(&pair[0]), i128::from(number)),
        ref other => panic!("no number: {other:?}"),
    });
    Some((algorithm, fields.collect()))
}

/// Whether INSPECT reads a state that the model does not know: of the kinds that came later.
fn of_another_kind(reply: &Value) -> bool {
    let Value::Array(flat) = reply else { return false };
    let names = flat.iter().step_by(2).map(text).collect::<Vec<_>>();
    ["BACKOFF", "QUOTA"].contains(&text(&flat[1]).as_str())
        || names.iter().any(|name| name == "debt")
}

/// How many of the forgeries INSPECT could read, and how many calls were made on them.
#[derive(Debug, Default)]
struct Outcomes {
    forgeries: u64,
    states: u64,
    allowed: u64,
    denied: u64,
}

/// A forgery is made by `write`; then every command is called on it. `rule` is what the
/// deciding calls ask for, and the clock stands at [`BASE_US`].
fn confront(client: &mut Client, write: &[Call], rule: (u64, u64), outcomes: &mut Outcomes) {
    let (limit, seconds) = rule;
    let period = format!("{seconds}s");
    let shown = || write.iter().flatten().map(|w| w.escape_ascii().to_string()).collect::<Vec<_>>();
    let mut calls = vec![words("DEL k")];
    calls.extend(write.iter().cloned());
    calls.extend([words("DUMP k"), words("RL.INSPECT k"), words("GET k")]);
    calls.extend(ALGORITHMS.map(|algorithm| words(&algorithm.peek("k", limit, &period))));
    calls.push(words("DUMP k"));
    let replies = client.pipeline(&calls);
    let replies = &replies[1 + write.len()..];
    let (dump, inspect, stored, peeks) = (&replies[0], &replies[1], &replies[2], &replies[3..9]);
    assert_eq!(&replies[9], dump, "{:?}: PEEK or INSPECT has changed it", shown());
    outcomes.forgeries += 1;
    let state = inspected(inspect);
    if of_another_kind(inspect) {
        // Growing delays, quotas and buckets in debt: read, left alone, and none of the model's.
        outcomes.states += 1;
        return;
    }
    if state.is_none() {
        assert_eq!(raw_error(inspect).as_deref(), Some(NOT_A_STATE), "{:?}", shown());
    } else {
        outcomes.states += 1;
    }
    // The strangers first: they may not touch it.
    let owner = state.as_ref().map(|(algorithm, _)| *algorithm);
    let strangers = ALGORITHMS.into_iter().filter(|algorithm| Some(*algorithm) != owner);
    let mut calls = strangers.map(|a| words(&a.call("k", limit, &period))).collect::<Vec<_>>();
    calls.push(words("DUMP k"));
    let replies = client.pipeline(&calls);
    let (after, refusals) = replies.split_last().expect("replies");
    for refusal in refusals {
        assert_eq!(raw_error(refusal).as_deref(), Some(WRONGTYPE), "{:?}", shown());
    }
    assert_eq!(after, dump, "{:?}: a refused call has changed it", shown());
    for (algorithm, peek) in ALGORITHMS.iter().zip(peeks) {
        let refused = raw_error(peek).as_deref() == Some(WRONGTYPE);
        assert_eq!(refused, Some(*algorithm) != owner, "{:?}: {}", shown(), algorithm.name);
    }
    let Some((algorithm, fields)) = state else { return };
    let Value::BulkString(bytes) = stored else { panic!("{:?}: no string", shown()) };
    let place = ALGORITHMS.iter().position(|other| *other == algorithm).expect("one of them");
    let line = words(&algorithm.call("k", limit, &period));
    let replies = client.pipeline(&[line, words("PTTL k"), words("RL.INSPECT k")]);
    let reply = integers(&replies[0]).unwrap_or_else(|| panic!("{:?}: {replies:?}", shown()));
    assert_eq!(integers(&peeks[place]), Some(reply), "{:?}: PEEK differs", shown());
    let asked = model::Rule { limit: limit.into(), period_us: i128::from(seconds) * 1_000_000 };
    match model::expected(algorithm, &fields, bytes, asked, BASE_US.into()) {
        Some(expected) => assert_eq!(reply.map(i128::from), expected, "{:?} {fields:?}", shown()),
        None => assert!(model::is_plausible(&fields, reply, asked), "{:?}: {reply:?}", shown()),
    }
    if reply[0] == 1 {
        outcomes.allowed += 1;
        assert!(matches!(replies[1], Value::Int(1..)), "{:?}: no TTL: {replies:?}", shown());
        let after = inspected(&replies[2]).map(|(algorithm, _)| algorithm);
        assert_eq!(after, Some(algorithm), "{:?}: what an allowed call leaves", shown());
    } else {
        outcomes.denied += 1;
        // A denial changes nothing, unless it is a repair: then that is a state with an end.
        if client.run("GET k") != *stored {
            assert!(matches!(replies[1], Value::Int(1..)), "{:?}: no TTL: {replies:?}", shown());
            let after = inspected(&replies[2]).map(|(algorithm, _)| algorithm);
            assert_eq!(after, Some(algorithm), "{:?}: what a repair leaves", shown());
        }
    }
}

fn start() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    (server, client)
}

/// A state as the module writes it: three calls some time ago, the last just now.
fn written(client: &mut Client, algorithm: Algorithm) -> Vec<u8> {
    client.integer("DEL k");
    for back_ms in [2_468, 1_234, 0] {
        client.freeze(BASE_US - back_ms * 1_000);
        assert!(client.allows(&algorithm.call("k", 7, "10")));
    }
    client.freeze(BASE_US);
    client.bytes("GET k")
}

fn finish(server: &Server, client: &mut Client, name: &str, outcomes: &Outcomes) {
    eprintln!("{name}: {outcomes:?}");
    let Outcomes { forgeries, states, allowed, denied } = *outcomes;
    assert!(states > 0 && states < forgeries && allowed > 0 && denied > 0, "{outcomes:?}");
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
}

#[test]
fn a_state_with_any_byte_overwritten_is_refused_or_explained() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    for algorithm in ALGORITHMS {
        let state = written(&mut client, algorithm);
        for place in 0..state.len() {
            let at = place.to_string();
            // All values where a kind or a marker may stand, and a spread elsewhere.
            let step = if place < 4 { 1 } else { 5 };
            for value in (0..=255_u8).step_by(step) {
                let write = [
                    call(&[b"SET", b"k", &state]),
                    call(&[b"SETRANGE", b"k", at.as_bytes(), &[value]]),
                ];
                confront(&mut client, &write, (7, 10), &mut outcomes);
            }
        }
    }
    finish(&server, &mut client, "SETRANGE", &outcomes);
}

#[test]
fn a_state_cut_short_or_grown_is_refused_or_explained() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    let entry = |us: u8, total: u8| [[0, 0, 0, 0, 0, us], [0, 0, 0, 0, 0, total]].concat();
    for algorithm in ALGORITHMS {
        let state = written(&mut client, algorithm);
        for length in 0..state.len() {
            let write = [call(&[b"SET", b"k", &state[..length]])];
            confront(&mut client, &write, (7, 10), &mut outcomes);
        }
        // Twelve bytes make an entry of a log: late, early, immense, empty, out of order.
        let entries = [entry(255, 255), entry(0, 9), vec![255; 12], vec![0; 12], entry(1, 1)];
        for tail in entries.iter().flat_map(|tail| [&tail[..], &tail[..11], &tail[..1]]) {
            let write = [call(&[b"SET", b"k", &state]), call(&[b"APPEND", b"k", tail])];
            confront(&mut client, &write, (7, 10), &mut outcomes);
            let front = [call(&[b"SET", b"k", tail]), call(&[b"APPEND", b"k", &state])];
            confront(&mut client, &front, (7, 10), &mut outcomes);
        }
        let far = [call(&[b"SET", b"k", &state]), call(&[b"SETRANGE", b"k", b"100000", b"x"])];
        confront(&mut client, &far, (7, 10), &mut outcomes);
        let bits = [call(&[b"SET", b"k", &state]), words("SETBIT k 8 0")];
        confront(&mut client, &bits, (7, 10), &mut outcomes);
    }
    finish(&server, &mut client, "SET and APPEND", &outcomes);
}

#[test]
fn a_forged_state_with_any_numbers_is_refused_or_explained() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    let mut random = Random::new(fuzz::seed("forged", 31));
    for _ in 0..fuzz::calls(3_000) / 6 {
        for algorithm in ALGORITHMS {
            let bytes = model::forge(&mut random, algorithm, BASE_US as u64);
            let rule = (*random.pick(&[1, 7, 1_000, 1_000_000]), *random.pick(&[1, 10, 86_400]));
            let write = [call(&[b"SET", b"k", &bytes])];
            confront(&mut client, &write, rule, &mut outcomes);
        }
    }
    assert!(outcomes.states > outcomes.forgeries / 3, "{outcomes:?}");
    finish(&server, &mut client, "forged", &outcomes);
}

#[test]
fn a_restored_forgery_is_refused_or_explained_and_a_corrupt_payload_restores_nothing() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    let mut random = Random::new(32);
    for _ in 0..40 {
        for algorithm in ALGORITHMS {
            let bytes = model::forge(&mut random, algorithm, BASE_US as u64);
            client.call(&call(&[b"SET", b"forged", &bytes]));
            let payload = client.bytes("DUMP forged");
            // Without an expiry, with one, and over a live state of the same name.
            let alone = [call(&[b"RESTORE", b"k", b"0", &payload])];
            confront(&mut client, &alone, (7, 10), &mut outcomes);
            let brief = [call(&[b"RESTORE", b"k", b"100000", &payload])];
            confront(&mut client, &brief, (7, 10), &mut outcomes);
            let over = [
                words(&algorithm.call("k", 7, "10")),
                call(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]),
            ];
            confront(&mut client, &over, (7, 10), &mut outcomes);
            // A damaged payload is the server's to refuse, and what was there stays.
            client.run("DEL k");
            client.decide(&algorithm.call("k", 7, "10"));
            let before = client.snapshot("k");
            let mut damaged = payload.clone();
            let place = random.below(damaged.len() as u64) as usize;
            damaged[place] ^= 1 << random.below(8);
            let reply = client.call(&call(&[b"RESTORE", b"k", b"0", &damaged, b"REPLACE"]));
            assert!(raw_error(&reply).is_some(), "{reply:?}");
            assert_eq!(client.snapshot("k"), before);
        }
    }
    finish(&server, &mut client, "RESTORE", &outcomes);
}

#[test]
fn payloads_of_every_other_type_are_refused_by_every_command() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    let makers = [
        "RPUSH other a b c",
        "SADD other a b c",
        "SADD other 1 2 3",
        "ZADD other 1 a 2 b",
        "HSET other field value",
        "XADD other 1-1 field value",
        "SET other 12345",
        "SETBIT other 100000 1",
        "PFADD other a b c",
    ];
    for maker in makers {
        client.integer("DEL other");
        client.run(maker);
        let payload = client.bytes("DUMP other");
        let write = [call(&[b"RESTORE", b"k", b"0", &payload])];
        confront(&mut client, &write, (7, 10), &mut outcomes);
    }
    assert_eq!((outcomes.forgeries, outcomes.states), (makers.len() as u64, 0));
    server.assert_alive();
}
