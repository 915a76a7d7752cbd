//! Tests that no input stops the server: arguments that no client sends, and states that no command
//! writes.

use redis::Value;
use redis_throttle_engine::algorithms::Algorithm as Row;

use support::uses::RULES;
use support::{
    ALGORITHMS, Algorithm, BASE_US, Client, Random, Server, WRONGTYPE, integers, raw_error,
};

type Call = Vec<Vec<u8>>;

fn words(line: &str) -> Call {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// Asserts a reply that a client can handle: a documented error, or five valid integers.
fn assert_sane(call: &[Vec<u8>], reply: &Value) {
    let words = || call.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>();
    if let Some(error) = raw_error(reply) {
        assert!(error.starts_with("ERR ") || error == WRONGTYPE, "{:?}: {error}", words());
        assert!(!error.contains("internal error"), "{:?}: {error}", words());
    } else if let Some([allowed, limit, remaining, retry_ms, reset_ms]) = integers(reply) {
        assert!(allowed == 0 || allowed == 1, "{:?}: {reply:?}", words());
        assert!((1..=1_000_000_000_000).contains(&limit), "{:?}: {reply:?}", words());
        assert!((0..=limit).contains(&remaining), "{:?}: {reply:?}", words());
        assert!(retry_ms >= -1 && reset_ms >= 0, "{:?}: {reply:?}", words());
    } else {
        panic!("{:?}: {reply:?}", words());
    }
}

#[test]
fn calls_with_any_single_byte_in_any_argument_get_a_reply() {
    let server = Server::start();
    let mut client = server.client();
    let plain = RULES.iter().map(|(name, rule)| format!("RL.{name} k {rule}"));
    let costly = ALGORITHMS.map(|algorithm| format!("{} COST 1", algorithm.call("k", 5, "60")));
    let others = [
        "RL.FIXED k 5 60 COST 1 ALIGNED",
        "RL.PEEK k GCRA 5 1 60 COST 1",
        "RL.QUOTA k 5 month START 12 ZONE Europe/Berlin COST 1",
        "RL.DEBUG CLOCK ADVANCE 1s",
        "RL.DEBUG CLOCK FREEZE 1000000",
    ];
    for template in plain.chain(costly).chain(others.map(str::to_owned)) {
        let template = words(&template);
        let is_debug = template[0] == b"RL.DEBUG";
        let mut calls = Vec::new();
        for place in 1..template.len() {
            for byte in 0..=255 {
                // In one call the byte replaces the argument, in the other it is inserted into the
                // argument.
                let mut replaced = template.clone();
                replaced[place] = vec![byte];
                let mut inserted = template.clone();
                inserted[place].insert(1, byte);
                calls.extend([replaced, inserted]);
            }
        }
        for (call, reply) in calls.iter().zip(client.pipeline(&calls)) {
            match reply {
                Value::Int(unix_us) if is_debug => assert!(unix_us >= 0, "{call:?}"),
                reply => assert_sane(call, &reply),
            }
        }
    }
    server.assert_alive();
}

#[test]
fn calls_with_many_or_long_arguments_get_a_reply() {
    let server = Server::start();
    let mut client = server.client();
    let long = [vec![b'9'; 5_000_000], vec![b'0'; 5_000_000], vec![0xff; 5_000_000]];
    let template = words("RL.GCRA k 5 1 60 COST 1");
    for huge in &long {
        for place in 1..template.len() {
            let mut call = template.clone();
            call[place].clone_from(huge);
            let reply = client.call(&call);
            // A huge key is valid, a huge number is not, and a cost that is written with many zeros
            // is zero.
            let fits = place == 1 || (place == 6 && huge[0] == b'0');
            assert_eq!(raw_error(&reply).is_none(), fits, "argument {place}: {reply:?}");
        }
        client.ok("FLUSHALL");
    }
    for algorithm in ALGORITHMS {
        for filler in ["COST", "1", "ALIGNED", ""] {
            let mut call = words(&algorithm.call("k", 5, "60"));
            call.extend(vec![filler.as_bytes().to_vec(); 50_000]);
            let reply = client.call(&call);
            assert!(raw_error(&reply).is_some(), "{} {filler}", algorithm.name);
            let mut call = words(&algorithm.peek("k", 5, "60"));
            call.extend(vec![filler.as_bytes().to_vec(); 50_000]);
            assert!(raw_error(&client.call(&call)).is_some(), "{} {filler}", algorithm.name);
        }
    }
    assert_eq!(client.integer("DBSIZE"), 0);
    server.assert_alive();
}

#[test]
fn random_calls_of_the_modules_words_get_a_reply() {
    #[rustfmt::skip]
    const WORDS: [&str; 34] = [
        "RL.FIXED", "RL.PEEK",
        "COST", "cost", "ALIGNED", "aligned", "CLOCK", "0", "1", "2", "3", "999999999999",
        "1000000000000", "1000000000001", "18446744073709551615", "1ms", "60", "0.5", "366d",
        "0.000001h", "1.5ms", "-1", "", " ", "%s%n", "k", "*", "\0", "\r\n", "NaN", "1e9", "36525d",
        "3155760000", "1000000000",
    ];
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(8);
    let names = Row::ALL.map(Row::name);
    let words_of_ours = [&WORDS[..], &names].concat();
    let (mut decisions, mut errors) = (0, 0);
    for _ in 0..10 {
        let calls = (0..2_000).map(|_| {
            let algorithm = random.pick(&ALGORITHMS);
            let key = format!("{}{}", algorithm.name, random.below(3));
            let mut call = match random.below(3) {
                0 => words(&algorithm.peek(&key, 1 + random.below(9), "60")),
                1 => words(&algorithm.call(&key, 1 + random.below(9), "0.5")),
                _ => words(&format!("{} COST 2", algorithm.call(&key, 5, "1ms"))),
            };
            // A valid call in which up to three words are replaced.
            for _ in 0..random.below(4) {
                let word = random.pick(&words_of_ours).as_bytes().to_vec();
                match random.below(3) {
                    0 => call.push(word),
                    _ => *call.last_mut().expect("a word") = word,
                }
                let (a, b) = (random.below(call.len() as u64 - 2), call.len() - 1);
                call.swap(a as usize + 2, b);
            }
            call
        });
        let calls = calls.collect::<Vec<_>>();
        for (call, reply) in calls.iter().zip(client.pipeline(&calls)) {
            assert_sane(call, &reply);
            decisions += usize::from(integers(&reply).is_some());
            errors += usize::from(raw_error(&reply).is_some());
        }
    }
    // A mix of valid and invalid calls.
    assert!(decisions > 4_000 && errors > 4_000, "{decisions} decisions, {errors} errors");
    server.assert_alive();
}

#[test]
fn extreme_valid_arguments_do_not_overflow() {
    let units = ["1", "2", "999999999999", "1000000000000"];
    let periods = ["1ms", "1.001ms", "1", "366d"];
    let instants = [0, 1, BASE_US, 7_258_118_400_000_000];
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let mut calls = Vec::new();
        for limit in units {
            for (rate, period) in units.iter().flat_map(|rate| periods.map(|p| (rate, p))) {
                let rule = if algorithm.has_rate {
                    format!("{limit} {rate} {period}")
                } else {
                    format!("{limit} {period}")
                };
                for cost in ["0", "1", "1000000000000"] {
                    calls.push(words(&format!("{} k {rule} COST {cost}", algorithm.command)));
                }
            }
        }
        // One key is used by all of these rules, first from the earliest instant to the latest,
        // then back.
        for unix_us in instants.iter().chain(instants.iter().rev()) {
            client.freeze(*unix_us);
            for (call, reply) in calls.iter().zip(client.pipeline(&calls)) {
                assert_sane(call, &reply);
            }
            assert!(raw_error(&client.run("RL.INSPECT k")).is_none(), "{}", algorithm.name);
        }
        client.integer("DEL k");
    }
    server.assert_alive();
}

/// Returns a state that this algorithm wrote. A log has several entries.
fn written_state(client: &mut Client, algorithm: Algorithm) -> Vec<u8> {
    client.integer("DEL k");
    client.freeze(BASE_US);
    for _ in 0..3 {
        assert!(client.allows(&algorithm.call("k", 7, "10")));
        client.advance_ms(1_234);
    }
    client.bytes("GET k")
}

/// Returns damaged copies of the state: truncated, with a bit flipped, a byte set, bytes appended,
/// and doubled.
fn damaged(state: &[u8]) -> Vec<Vec<u8>> {
    let mut damaged = (0..state.len()).map(|length| state[..length].to_vec()).collect::<Vec<_>>();
    for place in 0..state.len() {
        for value in 0..=255 {
            let mut bytes = state.to_vec();
            bytes[place] = value;
            damaged.push(bytes);
        }
    }
    for tail in [&[0][..], &[0xff], &[0xc0; 12], &[0xff; 12], &[0; 24], state] {
        damaged.push([state, tail].concat());
        damaged.push([tail, state].concat());
    }
    damaged
}

/// Stores a value, calls the commands that read it, and asserts that each of them replies.
fn present(client: &mut Client, algorithm: Algorithm, value: &[u8]) {
    let decide = words(&algorithm.call("k", 7, "10"));
    let peek = words(&algorithm.peek("k", 7, "10"));
    let set = vec![b"SET".to_vec(), b"k".to_vec(), value.to_vec()];
    let calls = [set, words("RL.INSPECT k"), peek, decide, words("GET k"), words("PTTL k")];
    let replies = client.pipeline(&calls);
    let escaped = value.escape_ascii();
    if let Some(error) = raw_error(&replies[1]) {
        assert!(error.starts_with("WRONGTYPE"), "{escaped}: {error}");
    }
    assert_sane(&calls[2], &replies[2]);
    assert_sane(&calls[3], &replies[3]);
    // PEEK is refused exactly when the call that decides is refused.
    let refused = raw_error(&replies[3]).is_some();
    assert_eq!(raw_error(&replies[2]).is_some(), refused, "{escaped}");
    if refused {
        assert_eq!(replies[4], Value::BulkString(value.to_vec()), "{escaped}: it was touched");
    } else if integers(&replies[3]).is_some_and(|reply| reply[0] == 1) {
        let Value::Int(left_ms) = replies[5] else { panic!("{escaped}: {:?}", replies[5]) };
        assert!(left_ms > 0, "{escaped}: allowed, and the key never expires: {left_ms}");
    }
}

#[test]
fn damaged_state_is_refused_or_decided_on_and_never_fatal() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let state = written_state(&mut client, algorithm);
        for value in damaged(&state) {
            present(&mut client, algorithm, &value);
        }
    }
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
}

#[test]
fn state_overwritten_by_hand_is_refused_or_decided_on() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 7, "10");
        client.freeze(BASE_US);
        let edits = [
            "APPEND k x",
            "APPEND k xxxxxxxxxxxx",
            "SETRANGE k 1 zzz",
            "SETRANGE k 1000 z",
            "SETBIT k 7 1",
            "SETBIT k 100000 1",
        ];
        for edit in edits {
            assert!(client.allows(&call));
            client.run(edit);
            let reply = client.run(&call);
            assert_sane(&words(&call), &reply);
            client.run("RL.INSPECT k");
            client.integer("DEL k");
        }
    }
    server.assert_alive();
}

#[test]
fn random_bytes_are_refused_as_a_state() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut random = Random::new(9);
    for _ in 0..500 {
        for algorithm in ALGORITHMS {
            let length = random.below(64) as usize;
            let mut value = (0..length).map(|_| random.number() as u8).collect::<Vec<_>>();
            // Half of the values begin like the module's states: a small array and a kind.
            if random.below(2) == 0 && length > 2 {
                value[0] = 0x93 + random.below(2) as u8;
                value[1] = 0xff - random.below(6) as u8;
            }
            present(&mut client, algorithm, &value);
        }
    }
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
}

#[test]
fn calls_on_a_huge_forged_log_get_a_reply_and_do_not_stop_the_server() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert!(client.allows("RL.SLIDINGLOG k 1000 10"));
    let header = client.bytes("GET k");
    let header = &header[..header.len() - 12];
    // A million entries: in order, out of order, and all equal.
    let orders: [fn(u64) -> u64; 3] = [|row| row, |row| row.wrapping_mul(0x9e37_79b9), |_| 1];
    for order in orders {
        let mut value = header.to_vec();
        for row in 0..1_000_000_u64 {
            let entry = order(row) & 0xffff_ffff;
            value.extend_from_slice(&entry.to_be_bytes()[2..]);
            value.extend_from_slice(&(row + 1).to_be_bytes()[2..]);
        }
        present(&mut client, support::algorithms::SLIDINGLOG, &value);
    }
    server.assert_alive();
}
