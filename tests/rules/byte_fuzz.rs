//! Sends bytes that no client library sends, in keys and in arguments, from a few bytes to
//! megabytes.
//!
//! `FUZZ_SEED` repeats a run, and `FUZZ_CALLS` makes it longer.

use redis::Value;

use support::fuzz::{self, Call, Outcomes, check_all, format_call, is_known};
use support::{ALGORITHMS, BASE_US, Random, Server, integers, raw_error};

fn words(line: &str) -> Call {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns one call of every command, with every argument it can have.
fn full_calls() -> Vec<Call> {
    let deciding = ALGORITHMS.map(|rule| rule.call(rule.name, 7, "10s") + " COST 1");
    let peeking = ALGORITHMS.map(|rule| rule.peek(rule.name, 7, "10s") + " COST 1");
    let others = [
        "RL.FIXED FIXED 7 10s ALIGNED COST 1",
        "RL.PEEK FIXED FIXED 7 10s COST 1 ALIGNED",
        "RL.QUOTA QUOTA 7 month START 31 ZONE Europe/Berlin COST 1",
        "RL.PEEK QUOTA QUOTA 7 week ZONE UTC COST 1 START sun",
        "RL.USE USE p COST 1 FOR gold FOR b PARTIAL DEFAULT FIXED 7 10s",
        "RL.USE USE queue COST 1",
        "RL.PEEK USE USE p COST 1 FOR gold",
        "RL.INSPECT GCRA",
        "RL.DEBUG CLOCK FREEZE 1800000000000000",
        "RL.DEBUG CLOCK ADVANCE -1ms",
    ];
    let lines = deciding.iter().chain(&peeking).map(String::as_str).chain(others);
    lines.map(words).collect()
}

fn noise(random: &mut Random, length: u64) -> Vec<u8> {
    (0..length).map(|_| random.number() as u8).collect()
}

/// Returns a number at a bound of the module or of a machine word, or 1 below or above that bound.
/// Leading zeros, the sign and the unit are random.
fn number(random: &mut Random) -> Vec<u8> {
    const BOUNDS: [u128; 12] = [
        0,
        1,
        1_000_000_000,
        1_000_000_000_000,
        3_155_760_000,
        31_622_400,
        7_258_118_400_000_000,
        1 << 31,
        1 << 32,
        1 << 53,
        1 << 63,
        1 << 64,
    ];
    let bound = *random.pick(&BOUNDS);
    let near = match random.below(3) {
        0 => bound.saturating_sub(1),
        1 => bound,
        _ => bound + 1,
    };
    let zeros = "0".repeat(*random.pick(&[0, 0, 0, 1, 40, 5_000]));
    let sign = random.pick(&["", "", "", "", "-", "+"]);
    let unit = random.pick(&["", "", "ms", "s", "d", ".000001", ".5h", "x"]);
    format!("{sign}{zeros}{near}{unit}").into_bytes()
}

/// Damages one random argument of a call, possibly the key.
fn hurt(random: &mut Random, call: &mut Call) {
    let place = 1 + random.below(call.len() as u64 - 1) as usize;
    let word = &mut call[place];
    let at = random.below(word.len() as u64 + 1) as usize;
    match random.below(7) {
        0 => word.insert(at, random.number() as u8),
        1 if at < word.len() => word[at] = random.number() as u8,
        2 if at < word.len() => word[at] ^= 1 << random.below(8),
        3 => word.truncate(at),
        4 => {
            let length = random.below(40);
            *word = noise(random, length);
        }
        5 => *word = number(random),
        _ => word.extend_from_within(..at),
    }
}

#[test]
fn calls_with_random_bytes_as_arguments_get_a_reply_and_errors_change_nothing() {
    let seed = fuzz::seed("bytes", 21);
    let server = Server::start();
    let mut client = server.client();
    fuzz::set_policies(&mut client);
    let templates = full_calls();
    let mut random = Random::new(seed);
    let mut outcomes = Outcomes::default();
    let frozen = words(&format!("RL.DEBUG CLOCK FREEZE {BASE_US}"));
    while outcomes.calls < fuzz::calls(30_000) {
        client.ok("FLUSHALL");
        client.freeze(BASE_US);
        let calls = (0..1_000).map(|_| {
            let mut call = random.pick(&templates).clone();
            (0..random.below(4)).for_each(|_| hurt(&mut random, &mut call));
            call
        });
        let calls = calls.collect::<Vec<_>>();
        check_all(&mut client, &calls, &frozen, &mut outcomes);
    }
    eprintln!("bytes: {outcomes:?}");
    assert!(outcomes.allowed > outcomes.calls / 10, "{outcomes:?}");
    assert!(outcomes.errors > outcomes.calls / 10, "{outcomes:?}");
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
}

#[test]
fn keys_of_any_bytes_are_different_keys() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(22);
    let mut keys = (0..=255).map(|byte| vec![byte]).collect::<Vec<_>>();
    keys.push(Vec::new());
    keys.push((0..=255).collect());
    keys.extend((0..=255).map(|byte| vec![b'k', byte, b'k']));
    keys.extend((0..100).map(|row| noise(&mut random, 100 + row)));
    keys.push(noise(&mut random, 3_000_000));
    for algorithm in ALGORITHMS {
        let mut sent = Vec::new();
        for key in &keys {
            let mut call = words(&algorithm.call("k", 5, "366d"));
            call[1].clone_from(key);
            let mut peek = words(&algorithm.peek("k", 5, "366d"));
            peek[1].clone_from(key);
            sent.extend([call, peek, vec![b"PTTL".to_vec(), key.clone()]]);
        }
        let replies = client.pipeline(&sent);
        for (key, replies) in keys.iter().zip(replies.chunks(3)) {
            let name = key[..key.len().min(20)].escape_ascii();
            for (reply, expected) in replies[..2].iter().zip([[1, 5, 4], [1, 5, 3]]) {
                let reply = integers(reply).unwrap_or_else(|| panic!("{name}: {reply:?}"));
                assert_eq!(reply[..3], expected, "{} {name}", algorithm.name);
            }
            assert!(matches!(replies[2], Value::Int(1..)), "{name}: {:?}", replies[2]);
        }
        assert_eq!(client.integer("DBSIZE"), keys.len() as i64, "{}", algorithm.name);
        client.ok("FLUSHALL");
    }
}

#[test]
fn every_command_refuses_a_hundred_thousand_arguments() {
    let server = Server::start();
    let mut client = server.client();
    let fillers: [&[&str]; 6] =
        [&["COST", "1"], &["ALIGNED"], &["COST"], &["k"], &[""], &["1", "COST"]];
    for template in full_calls() {
        for filler in fillers {
            let mut call = template.clone();
            let more = filler.iter().cycle().take(100_000).map(|word| word.as_bytes().to_vec());
            call.extend(more);
            let error = raw_error(&client.call(&call));
            let error = error.unwrap_or_else(|| panic!("{}: no error", format_call(&call)));
            assert!(is_known(&error), "{}: {error}", format_call(&call));
        }
    }
    assert_eq!(client.integer("DBSIZE"), 0);
    server.assert_alive();
}

#[test]
fn every_call_with_an_empty_or_megabytes_long_argument_gets_a_reply() {
    let server = Server::start();
    let mut client = server.client();
    fuzz::set_policies(&mut client);
    let mut random = Random::new(23);
    let sizes = [Vec::new(), vec![0; 2_000_000], noise(&mut random, 2_000_000)];
    let mut refused = 0;
    for template in full_calls() {
        for place in 1..template.len() {
            for value in &sizes {
                let mut call = template.clone();
                call[place].clone_from(value);
                let reply = client.call(&call);
                let is_key = place == 1 && template[0] != b"RL.DEBUG";
                if is_key {
                    assert!(raw_error(&reply).is_none(), "{}: {reply:?}", format_call(&call));
                    client.ok("FLUSHALL");
                } else {
                    let error =
                        raw_error(&reply).unwrap_or_else(|| panic!("{}", format_call(&call)));
                    assert!(is_known(&error), "{}: {error}", format_call(&call));
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 200, "{refused}");
    assert_eq!(client.integer("DBSIZE"), 0);
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
}
