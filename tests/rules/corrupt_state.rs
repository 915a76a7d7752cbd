//! Forged states: each is refused, or decided on with the fields that RL.INSPECT shows.
//!
//! If INSPECT can read a state, the engine's naive model of its algorithm predicts the reply. If it
//! cannot, every command replies WRONGTYPE.

use redis::Value;
use redis_throttle_engine::algorithms::{Algorithm, State};
use redis_throttle_engine::oracle::{self, AnySubject, Limits, Verb};
use redis_throttle_engine::state::decode;
use redis_throttle_engine::time::Instant;

use support::forge::forge;
use support::{BASE_US, Client, Random, Reply, Server, WRONGTYPE, fuzz, integers, raw_error, text};

const NOT_A_STATE: &str = "WRONGTYPE the key does not hold a rate limiter's state";

type Call = Vec<Vec<u8>>;

fn words(line: &str) -> Call {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn call(parts: &[&[u8]]) -> Call {
    parts.iter().map(|part| part.to_vec()).collect()
}

/// Returns the limits of the calls: `limit` per `seconds`.
fn limits((limit, seconds): (i128, i128)) -> Limits {
    let period_us = seconds * 1_000_000;
    Limits { capacity: limit, rate: limit, period_us, aligned: false, slots: 1_024 }
}

/// Returns the call on the key `k` that decides by this algorithm.
fn deciding(algorithm: Algorithm, limits: &Limits) -> String {
    format!("{} k {}", algorithm.command(), (AnySubject::of(algorithm).words)(limits))
}

/// Returns the PEEK of the same call.
fn peeking(algorithm: Algorithm, limits: &Limits) -> String {
    format!("RL.PEEK k {} {}", algorithm.name(), (AnySubject::of(algorithm).words)(limits))
}

/// The names and values of a state's fields, in the order of INSPECT.
type Fields = Vec<(String, i64)>;

/// Decodes RESP2's flat array. Returns the algorithm and its fields; `None` if INSPECT refused.
fn inspected(reply: &Value) -> Option<(Algorithm, Fields)> {
    let Value::Array(flat) = reply else { return None };
    let name = text(&flat[1]);
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
    let fields = flat[2..].chunks(2).map(|pair| match pair[1] {
        Value::Int(number) => (text(&pair[0]), number),
        ref other => panic!("no number: {other:?}"),
    });
    Some((algorithm.unwrap_or_else(|| panic!("no algorithm: {name}")), fields.collect()))
}

/// Checks the reply of a deciding call on the state in `bytes`. INSPECT shows its `fields`.
fn check_reply(bytes: &[u8], fields: &Fields, limits: &Limits, reply: Reply) -> Result<(), String> {
    let state = decode(bytes).expect("INSPECT reads it");
    let expected = state.inspect(Instant::from_us(BASE_US as u64)).expect("INSPECT shows it");
    let expected: Fields = expected
        .into_iter()
        .map(|(n, v)| (n.to_owned(), i64::try_from(v).unwrap_or(i64::MAX)))
        .collect();
    if *fields != expected {
        return Err(format!("it holds {expected:?}"));
    }
    match (AnySubject::of(state.algorithm().expect("not a ban")).explain)(state, limits) {
        Ok(mut model) => {
            let (oracle::Reply { allowed, limit, remaining, retry_after_ms, reset_after_ms }, _) =
                model.act(Verb::Decide, limits, BASE_US.into(), 1).expect("a decision");
            let expected = [allowed, limit, remaining, retry_after_ms, reset_after_ms];
            if reply.map(i128::from) == expected { Ok(()) } else { Err(format!("{expected:?}")) }
        }
        Err(_) if is_plausible(&state, limits, reply) => Ok(()),
        Err(_) => Err("implausible".to_owned()),
    }
}

/// Returns true if a log whose entries are out of order can give this reply: any of its entries may
/// count.
fn is_plausible(state: &State<'_>, limits: &Limits, reply: Reply) -> bool {
    let State::SlidingLog(log) = state else { return false };
    let used = i128::from(log.last().total);
    let [allowed, limit, remaining, retry_ms, reset_ms] = reply.map(i128::from);
    let bounded = limit == limits.capacity && reset_ms >= 0 && remaining < limit;
    bounded
        && match allowed {
            1 => retry_ms == 0 && remaining >= (limit - used - 1).max(0),
            _ => remaining == 0 && used >= limit && retry_ms >= 1,
        }
}

/// The number of forged states, of those that INSPECT could read, and of the verdicts on the
/// latter.
#[derive(Debug, Default)]
struct Outcomes {
    forgeries: u64,
    states: u64,
    allowed: u64,
    denied: u64,
}

/// Forges a state with `write`, then makes every call on it. `rule` gives the limits of the calls,
/// and the clock is frozen at [`BASE_US`].
fn confront(client: &mut Client, write: &[Call], rule: (i128, i128), outcomes: &mut Outcomes) {
    const ALL: [Algorithm; Algorithm::ALL.len()] = Algorithm::ALL;
    let limits = limits(rule);
    let forged =
        || write.iter().flatten().map(|w| w.escape_ascii().to_string()).collect::<Vec<_>>();
    let mut calls = vec![words("DEL k")];
    calls.extend(write.iter().cloned());
    calls.extend([words("DUMP k"), words("RL.INSPECT k"), words("GET k")]);
    calls.extend(ALL.map(|algorithm| words(&peeking(algorithm, &limits))));
    calls.push(words("DUMP k"));
    let replies = client.pipeline(&calls);
    let [dump, inspect, stored, peeks @ .., after] = &replies[1 + write.len()..] else {
        panic!("{:?}: {replies:?}", forged())
    };
    assert_eq!(after, dump, "{:?}: PEEK or INSPECT has changed it", forged());
    outcomes.forgeries += 1;
    if matches!(stored, Value::BulkString(bytes) if matches!(decode(bytes), Ok(State::Banned(_)))) {
        // A ban is a state for every algorithm.
        assert!(peeks.iter().all(|peek| integers(peek).is_some()), "{:?}: {peeks:?}", forged());
        return;
    }
    let state = inspected(inspect);
    if state.is_none() {
        assert_eq!(raw_error(inspect).as_deref(), Some(NOT_A_STATE), "{:?}", forged());
    } else {
        outcomes.states += 1;
    }
    // Calls the other algorithms first. They must refuse the state and leave it unchanged.
    let owner = state.as_ref().map(|(algorithm, _)| *algorithm);
    let strangers = ALL.into_iter().filter(|algorithm| Some(*algorithm) != owner);
    let mut calls: Vec<_> = strangers.map(|other| words(&deciding(other, &limits))).collect();
    calls.push(words("DUMP k"));
    let replies = client.pipeline(&calls);
    let (after, refusals) = replies.split_last().expect("replies");
    for refusal in refusals {
        assert_eq!(raw_error(refusal).as_deref(), Some(WRONGTYPE), "{:?}", forged());
    }
    assert_eq!(after, dump, "{:?}: a refused call has changed it", forged());
    for (algorithm, peek) in ALL.iter().zip(peeks) {
        let refused = raw_error(peek).as_deref() == Some(WRONGTYPE);
        assert_eq!(refused, Some(*algorithm) != owner, "{:?}: {algorithm:?}", forged());
    }
    let Some((algorithm, fields)) = state else { return };
    let Value::BulkString(bytes) = stored else { panic!("{:?}: no string", forged()) };
    let place = ALL.iter().position(|other| *other == algorithm).expect("one of them");
    let line = words(&deciding(algorithm, &limits));
    let replies = client.pipeline(&[line, words("PTTL k"), words("RL.INSPECT k")]);
    let reply = integers(&replies[0]).unwrap_or_else(|| panic!("{:?}: {replies:?}", forged()));
    assert_eq!(integers(&peeks[place]), Some(reply), "{:?}: PEEK differs", forged());
    if let Err(difference) = check_reply(bytes, &fields, &limits, reply) {
        panic!("{:?} {fields:?} {limits:?}: {reply:?}, {difference}", forged());
    }
    if reply[0] == 1 {
        outcomes.allowed += 1;
        assert!(matches!(replies[1], Value::Int(1..)), "{:?}: no TTL: {replies:?}", forged());
        let after = inspected(&replies[2]).map(|(algorithm, _)| algorithm);
        assert_eq!(after, Some(algorithm), "{:?}: what an allowed call leaves", forged());
    } else {
        outcomes.denied += 1;
        // A denial changes the state only to repair it. The repaired state has an expiry.
        if client.run("GET k") != *stored {
            assert!(matches!(replies[1], Value::Int(1..)), "{:?}: no TTL: {replies:?}", forged());
            let after = inspected(&replies[2]).map(|(algorithm, _)| algorithm);
            assert_eq!(after, Some(algorithm), "{:?}: what a repair leaves", forged());
        }
    }
}

fn start() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    (server, client)
}

/// Returns a state that the module wrote: three calls, 1.234 s apart, the last at [`BASE_US`].
fn written(client: &mut Client, algorithm: Algorithm) -> Vec<u8> {
    client.integer("DEL k");
    for back_ms in [2_468, 1_234, 0] {
        client.freeze(BASE_US - back_ms * 1_000);
        assert!(client.allows(&deciding(algorithm, &limits((7, 10)))));
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
fn state_with_one_byte_overwritten_is_refused_or_decided_as_inspect_shows() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    for algorithm in Algorithm::ALL {
        let state = written(&mut client, algorithm);
        for place in 0..state.len() {
            let at = place.to_string();
            // Tests every value of the first four bytes, which hold kinds and markers, and every
            // fifth value of the other bytes.
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
fn truncated_or_extended_state_is_refused_or_decided_as_inspect_shows() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    let entry = |us: u8, total: u8| [[0, 0, 0, 0, 0, us], [0, 0, 0, 0, 0, total]].concat();
    for algorithm in Algorithm::ALL {
        let state = written(&mut client, algorithm);
        for length in 0..state.len() {
            let write = [call(&[b"SET", b"k", &state[..length]])];
            confront(&mut client, &write, (7, 10), &mut outcomes);
        }
        // A log entry has twelve bytes. The entries here are late, early, huge, empty and out of
        // order.
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
fn forged_state_with_random_numbers_is_refused_or_decided_as_inspect_shows() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    let mut random = Random::new(fuzz::seed("forged", 31));
    for _ in 0..fuzz::calls(3_000) / Algorithm::ALL.len() as u64 {
        for algorithm in Algorithm::ALL {
            let bytes = forge(&mut random, algorithm, BASE_US as u64);
            let rule = (*random.pick(&[1, 7, 1_000, 1_000_000]), *random.pick(&[1, 10, 86_400]));
            let write = [call(&[b"SET", b"k", &bytes])];
            confront(&mut client, &write, rule, &mut outcomes);
        }
    }
    assert!(outcomes.states > outcomes.forgeries / 3, "{outcomes:?}");
    finish(&server, &mut client, "forged", &outcomes);
}

#[test]
fn restored_forged_state_is_refused_or_decided_as_inspect_shows_and_corrupt_payload_refused() {
    let (server, mut client) = start();
    let mut outcomes = Outcomes::default();
    let mut random = Random::new(32);
    for _ in 0..40 {
        for algorithm in Algorithm::ALL {
            let bytes = forge(&mut random, algorithm, BASE_US as u64);
            client.call(&call(&[b"SET", b"forged", &bytes]));
            let payload = client.bytes("DUMP forged");
            // Restores the state without an expiry, with an expiry, and in place of a live state.
            let alone = [call(&[b"RESTORE", b"k", b"0", &payload])];
            confront(&mut client, &alone, (7, 10), &mut outcomes);
            let brief = [call(&[b"RESTORE", b"k", b"100000", &payload])];
            confront(&mut client, &brief, (7, 10), &mut outcomes);
            let over = [
                words(&deciding(algorithm, &limits((7, 10)))),
                call(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]),
            ];
            confront(&mut client, &over, (7, 10), &mut outcomes);
            // The server refuses a damaged payload and keeps the earlier value.
            client.run("DEL k");
            client.decide(&deciding(algorithm, &limits((7, 10))));
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
fn every_command_refuses_payloads_of_every_other_type() {
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
