//! Tests policies that change while clients call them, and which keys a rollout selects.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use redis_throttle_engine::algorithms::Algorithm;

use support::uses::{RULES, decide, set, seven};
use support::{ALGORITHMS, BASE_US, Client, Random, Server};

/// Returns for each of 10,000 keys whether the policy is enforced, by a PEEK of more than the
/// limit.
fn enforced_for(client: &mut Client, policy: &str) -> Vec<bool> {
    let calls = (0..10_000).map(|number| {
        let key = format!("user:{number}");
        ["RL.PEEK", &key, "USE", policy, "COST", "2"].map(str::to_owned).to_vec()
    });
    let replies = client.pipeline(&calls.collect::<Vec<_>>());
    replies.iter().map(|reply| seven(reply).expect("seven integers")[0] == 0).collect()
}

fn count(enforced: &[bool]) -> usize {
    enforced.iter().filter(|is_enforced| **is_enforced).count()
}

#[test]
fn rollout_selects_the_same_keys_on_every_server_and_keeps_them_as_it_grows() {
    let mut server = Server::start();
    let mut client = server.client();
    set(&mut client, "p ENFORCE 10 FIXED 1 1h");
    let ten = enforced_for(&mut client, "p");
    assert!((900..=1_100).contains(&count(&ten)), "{} of 10,000", count(&ten));
    // The documented hash of the policy's name, a zero byte and the key selects the keys.
    let fnv_1a = |bytes: &[u8]| {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    for (number, is_in) in ten.iter().enumerate() {
        let drawn = fnv_1a(format!("p\0user:{number}").as_bytes()) % 100;
        assert_eq!(*is_in, drawn < 10, "user:{number}");
    }
    // Another variant of the policy selects the same keys, and another policy selects others.
    set(&mut client, "p@gold ENFORCE 10 FIXED 1 1h");
    let of_variant = |client: &mut Client| {
        let calls = (0..1_000).map(|number| format!("RL.PEEK user:{number} USE p COST 2 FOR gold"));
        calls.map(|call| decide(client, &call)[0] == 0).collect::<Vec<_>>()
    };
    assert_eq!(of_variant(&mut client), ten[..1_000]);
    set(&mut client, "q ENFORCE 10 FIXED 1 1h");
    let other = enforced_for(&mut client, "q");
    assert!((900..=1_100).contains(&count(&other)) && other != ten);
    // The same keys are selected after a restart, and on another server.
    server.crash();
    server.start_again();
    let elsewhere = Server::start();
    for server in [&server, &elsewhere] {
        let mut client = server.client();
        set(&mut client, "p ENFORCE 10 GCRA 1 1 1h");
        assert_eq!(enforced_for(&mut client, "p"), ten);
    }
    // A larger percentage keeps the selected keys.
    let mut client = elsewhere.client();
    let mut before = ten;
    for percent in [20, 50, 99, 100] {
        set(&mut client, &format!("p ENFORCE {percent} GCRA 1 1 1h"));
        let now = enforced_for(&mut client, "p");
        assert!(now.iter().zip(&before).all(|(now, before)| *now || !before), "{percent}");
        let expected = percent * 100;
        assert!(count(&now).abs_diff(expected) <= 150, "{percent}: {}", count(&now));
        before = now;
    }
    assert_eq!(count(&before), 10_000);
    set(&mut client, "p ENFORCE 0 GCRA 1 1 1h");
    assert_eq!(count(&enforced_for(&mut client, "p")), 0);
}

#[test]
fn rollout_denies_selected_keys_and_applies_shadow_mode_to_the_others() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "p ENFORCE 50 FIXED 2 1h");
    let (mut denied, mut shadows) = (0, 0);
    for number in 0..200 {
        let call = format!("RL.USE user:{number} p");
        assert_eq!(decide(&mut client, &call), [1, 2, 1, 0, 3_600_000, 1, 0]);
        assert_eq!(decide(&mut client, &call), [1, 2, 0, 0, 3_600_000, 1, 0]);
        match decide(&mut client, &call) {
            [0, 2, 0, 3_600_000, 3_600_000, 0, 3_600_000] => denied += 1,
            [1, 2, 0, 0, 3_600_000, 0, 3_600_000] => shadows += 1,
            other => panic!("{call}: {other:?}"),
        }
    }
    assert!((70..=130).contains(&denied), "{denied} denied, {shadows} in shadow mode");
}

#[test]
fn policy_in_shadow_mode_counts_exactly_the_calls_that_enforcing_it_denies() {
    let (tried, enforced) = (Server::start(), Server::start());
    let (mut in_shadow, mut denying) = (tried.client(), enforced.client());
    let mut random = Random::new(113);
    for (algorithm, limits) in *RULES {
        set(&mut in_shadow, &format!("{algorithm} SHADOW {algorithm} {limits}"));
        set(&mut denying, &format!("{algorithm} {algorithm} {limits}"));
    }
    let (mut shadow_denied, mut denied) = ([0; Algorithm::ALL.len()], [0; Algorithm::ALL.len()]);
    let mut now_us = BASE_US;
    in_shadow.freeze(now_us);
    denying.freeze(now_us);
    for _ in 0..6_000 {
        let at = random.below(RULES.len() as u64) as usize;
        let (algorithm, _) = RULES[at];
        let cost = match (algorithm, random.below(4)) {
            ("BACKOFF", _) | (_, 0) => "",
            (_, 1) => " COST 2",
            (_, 2) => " COST 3 PARTIAL",
            _ => " COST 0",
        };
        let call = format!("RL.USE {algorithm}:{} {algorithm}{cost}", random.below(3));
        if random.below(3) == 0 {
            now_us += random.below(100_000_000) as i64;
            in_shadow.freeze(now_us);
            denying.freeze(now_us);
        }
        let (tried, decided) = (decide(&mut in_shadow, &call), decide(&mut denying, &call));
        // The other fields are equal, because the key has the same state as under enforcement.
        assert_eq!((tried[1], tried[2], tried[4]), (decided[1], decided[2], decided[4]), "{call}");
        assert_eq!(tried[5..], decided[5..], "{call}");
        assert!(tried[0] > 0 && tried[3] == 0, "{call}: {tried:?}");
        shadow_denied[at] += i64::from(tried[5] == 0);
        denied[at] += i64::from(decided[0] == 0);
    }
    assert_eq!(shadow_denied, denied);
    assert!(denied.iter().all(|count| *count > 20), "{denied:?}");
    // Compares without the expiry times, which follow the real clock.
    let states = |server: &Server| {
        let contents = server.client().contents().into_iter();
        contents.map(|(key, state, _)| (key, state)).collect::<Vec<_>>()
    };
    assert_eq!(states(&tried), states(&enforced));
    let count = |server: &Server, field: &str| server.client().info_number("rl", field);
    assert_eq!(count(&enforced, "rl_use_denied"), denied.iter().sum());
    assert_eq!(count(&tried, "rl_use_denied"), 0);
}

#[test]
fn call_during_policy_changes_gets_the_old_policy_or_the_new_one() {
    const CALLERS: usize = 16;
    const CHANGES: usize = 4_000;
    const CHANGES_A_SECOND: usize = 2_000;
    const DEADLINE: Duration = Duration::from_secs(60);
    let server = Server::start();
    // Each definition, and the only reply it can give to a call on a new key.
    let definitions = [
        ("FIXED 10 1h", [1, 10, 9, 0, 3_600_000, 1, 0]),
        ("FIXED 20 2h", [1, 20, 19, 0, 7_200_000, 1, 0]),
        ("SHADOW FIXED 30 3h", [1, 30, 29, 0, 10_800_000, 1, 0]),
        ("OFF FIXED 40 4h", [1, 40, 39, 0, 14_400_000, 1, 0]),
        ("BLOCK FIXED 50 5h", [0, 50, 0, -1, 0, 0, -1]),
        ("GCRA 60 60 60s", [1, 60, 59, 0, 1_000, 1, 0]),
        ("LEAKYBUCKET 70 70 140s", [1, 70, 69, 0, 2_000, 1, 0]),
        ("TOKENBUCKET 80 80 240s", [1, 80, 79, 0, 3_000, 1, 0]),
    ];
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, &format!("p {}", definitions[0].0));
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    // The number of callers that have seen the reply of every definition.
    let content = AtomicUsize::new(0);
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (server, stop, calls, content) = (&server, &stop, &calls, &content);
            scope.spawn(move || {
                let mut client = server.client();
                let mut seen = [false; 8];
                for number in 0.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    let words = ["RL.USE", &format!("{caller}:{number}"), "p"].map(str::to_owned);
                    let batch = (0..20).map(|more| {
                        let mut words = words.to_vec();
                        words[1] = format!("{}:{more}", words[1]);
                        words
                    });
                    for reply in client.pipeline(&batch.collect::<Vec<_>>()) {
                        let reply = seven(&reply).unwrap_or_else(|| panic!("{reply:?}"));
                        let found = definitions.iter().position(|(_, expected)| *expected == reply);
                        let found = found.unwrap_or_else(|| panic!("of no rule: {reply:?}"));
                        let news = !mem::replace(&mut seen[found], true);
                        if news && seen.iter().all(|seen| *seen) {
                            content.fetch_add(1, Relaxed);
                        }
                        calls.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        let start = Instant::now();
        let done = || content.load(Relaxed) == CALLERS && calls.load(Relaxed) > 10_000;
        for number in (0..).take_while(|number| *number < CHANGES || !done()) {
            assert!(start.elapsed() < DEADLINE, "{content:?} callers have seen all, of {calls:?}");
            set(&mut client, &format!("p {}", definitions[number % definitions.len()].0));
            let due = Duration::from_secs_f64(number as f64 / CHANGES_A_SECOND as f64);
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
    server.assert_alive();
}

#[test]
fn policy_with_changing_limits_decides_and_stores_like_the_plain_commands() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(114);
    for (algorithm, _) in RULES.iter().filter(|(algorithm, _)| *algorithm != "BACKOFF") {
        client.run("FLUSHALL");
        client.freeze(BASE_US);
        let has_rate = ALGORITHMS.iter().find(|row| row.name == *algorithm).map(|row| row.has_rate);
        for _ in 0..120 {
            let limit = 1 + random.below(9);
            let limits = match has_rate {
                Some(false) => format!("{limit} {}", 60 + random.below(60)),
                Some(true) => format!("{limit} {} 60", 1 + random.below(9)),
                None => format!("{limit} {}", ["day", "week"][random.below(2) as usize]),
            };
            let mode = ["", "SHADOW"][random.below(2) as usize];
            set(&mut client, &format!("p {mode} {algorithm} {limits}"));
            let reply = decide(&mut client, "RL.USE k p");
            let twin = client.decide(&format!("RL.{algorithm} twin {limits}"));
            assert_eq!(
                (reply[5], reply[1], reply[2], reply[6], reply[4]),
                (twin[0], twin[1], twin[2], twin[3], twin[4]),
                "{mode} {algorithm} {limits}"
            );
            assert_eq!(client.run("GET k"), client.run("GET twin"), "{algorithm} {limits}");
            client.advance_ms(random.below(40_000) as i64);
        }
        client.integer("RL.POLICY DEL p");
    }
}
