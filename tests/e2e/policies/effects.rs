//! The effects of `RL.USE`. A denied call has none, whether its policy is enforced or in shadow
//! mode. A call whose policy is OFF or BLOCK has none.

use redis::Value;

use support::replication::Effect;
use support::uses::{RULES, decide, set};
use support::{BASE_US, Client, Server, eventually, replica_of};

/// Asserts that the calls change no key and no expiry, break no WATCH, and send no invalidation, no
/// event and nothing to replicas.
fn assert_traceless(server: &Server, setup: impl Fn(&mut Client), calls: &[String]) {
    let mut client = server.client();
    let (mut watcher, mut tracker) = (server.client(), server.client3());
    setup(&mut client);
    let mut stream = server.replication_stream();
    tracker.ok("CLIENT TRACKING ON BCAST");
    tracker.subscribe("__keyevent@0__:*");
    stream.effects(&mut client);
    tracker.pushed();
    let (before, changes) = (client.contents(), client.changes());
    watcher.ok("WATCH k");
    for call in calls {
        client.call(&words(call));
        assert!(tracker.pushed().is_empty(), "{call}: events or invalidations");
        assert_eq!(client.contents(), before, "{call}");
    }
    assert_eq!(client.changes(), changes, "{calls:?}");
    watcher.ok("MULTI");
    watcher.run("PING");
    assert_ne!(watcher.run("EXEC"), Value::Nil, "{calls:?}: the watch broke");
    assert!(stream.effects(&mut client).is_empty(), "{calls:?}: replicated");
    client.run("FLUSHALL");
    client.integer("RL.POLICY DEL p");
}

/// Splits a line into words. Text in quotes is one word.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    parts.collect()
}

#[test]
fn denied_call_has_no_effect_whether_its_policy_is_enforced_or_in_shadow_mode() {
    let server = Server::setup().line("notify-keyspace-events EA").start();
    for mode in ["SHADOW", "ENFORCE 0", ""] {
        for (algorithm, limits) in *RULES {
            let setup = |client: &mut Client| {
                client.freeze(BASE_US);
                set(client, &format!("p {mode} {algorithm} {limits}"));
                while decide(client, "RL.USE k p")[5] == 1 {}
                client.decide("RL.FIXED other 1 1h");
            };
            // In the last two calls another rule denies, so a rule that would have allowed takes
            // nothing.
            let calls = [
                "RL.USE k p",
                "RL.USE k p",
                "RL.PEEK k USE p",
                "RL.ALL k \"USE p\" other \"FIXED 1 1h\"",
                "RL.ALL other \"FIXED 1 1h\" none \"USE p\"",
            ];
            assert_traceless(&server, setup, &calls.map(str::to_owned));
        }
    }
}

#[test]
fn call_with_an_off_or_blocked_policy_has_no_effect_and_opens_no_key() {
    let server =
        Server::setup().line("notify-keyspace-events EAm").line("enable-debug-command yes").start();
    for mode in ["OFF", "BLOCK", "EX 1h BLOCK"] {
        for (algorithm, limits) in *RULES {
            let setup = |client: &mut Client| {
                client.freeze(BASE_US);
                client.ok("SET k hello PX 100000000");
                set(client, &format!("p {mode} {algorithm} {limits}"));
            };
            let calls = [
                "RL.USE k p",
                "RL.USE k p",
                "RL.USE none p",
                "RL.PEEK k USE p",
                "RL.PEEK none USE p",
                "RL.CHARGE k USE p",
                "RL.REFUND k USE p",
                "RL.ALL k \"USE p\"",
                "RL.ALL k \"USE p\" none \"USE p\"",
                "RL.PEEKALL k \"USE p\" none \"USE p\"",
            ];
            assert_traceless(&server, setup, &calls.map(str::to_owned));
        }
    }
    // Opening the key would count as a miss, and could delete an expired key.
    let mut client = server.client();
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for mode in ["OFF", "BLOCK"] {
        set(&mut client, &format!("p {mode} FIXED 1 1h"));
        client.ok("SET gone 1 PX 1");
        let set_at = client.server_time_us();
        eventually("it has expired", || (client.server_time_us() > set_at + 2_000).then_some(()));
        let looks = |client: &mut Client| {
            ["keyspace_misses", "keyspace_hits", "expired_keys"]
                .map(|field| client.info_number("stats", field))
        };
        let before = looks(&mut client);
        for call in ["RL.USE gone p", "RL.PEEK gone USE p", "RL.CHARGE gone USE p"] {
            client.run(call);
        }
        client.call(&["RL.ALL", "gone", "USE p"]);
        assert_eq!(looks(&mut client), before, "{mode}");
        client.run("GET gone");
        assert_ne!(looks(&mut client), before, "{mode}: the counters count");
    }
}

/// Returns the effects of a call without the expiry times, which follow the real clock even if the
/// module's clock is frozen.
fn effects_of(server: &Server, client: &mut Client, call: &str) -> Vec<Effect> {
    let mut stream = server.replication_stream();
    client.run(call);
    let mut effects = stream.effects(client);
    for effect in &mut effects {
        effect.retain(|word| word.len() != 13 || !word.iter().all(u8::is_ascii_digit));
    }
    effects
}

#[test]
fn allowed_call_in_shadow_mode_has_exactly_the_effect_of_the_rule() {
    let server = Server::setup().line("notify-keyspace-events EA").start();
    let mut client = server.client();
    for (algorithm, limits) in *RULES {
        let mut seen = Vec::new();
        for mode in ["SHADOW", "ENFORCE 0", "", "ENFORCE 100"] {
            client.freeze(BASE_US);
            client.run("DEL k");
            set(&mut client, &format!("p {mode} {algorithm} {limits}"));
            let mut of_mode = Vec::new();
            let mut listener = server.client3();
            listener.ok("CLIENT TRACKING ON BCAST");
            listener.subscribe("__keyevent@0__:*");
            // The calls create a key, change it, and repair it after the clock has stepped back.
            for _ in 0..2 {
                of_mode.push(effects_of(&server, &mut client, "RL.USE k p"));
                client.advance_ms(10);
            }
            client.advance_ms(-90_000_000);
            of_mode.push(effects_of(&server, &mut client, "RL.USE k p"));
            let events = listener
                .pushed()
                .iter()
                .filter(|push| {
                    let text = format!("{push:?}");
                    text.contains("keyevent") && !text.contains("mark")
                })
                .count();
            assert!(of_mode.iter().all(|effects| !effects.is_empty()), "{algorithm}: {of_mode:?}");
            seen.push((of_mode, client.bytes("GET k"), events));
        }
        client.integer("DEL k");
        client.freeze(BASE_US);
        for other in &seen[1..] {
            assert_eq!(other, &seen[0], "{algorithm}");
        }
        client.integer("RL.POLICY DEL p");
    }
}

#[test]
fn replica_and_restarted_server_hold_the_keys_that_the_calls_left() {
    let mut primary =
        Server::setup().with_tcp().line("appendonly yes").line("appendfsync always").start();
    let replica = replica_of(&primary);
    let mut client = primary.client();
    assert_eq!(client.integer("EXISTS k"), 0);
    client.decide("RL.FIXED first 1 1h");
    assert_eq!(client.integer("WAIT 1 60000"), 1);
    for (algorithm, limits) in *RULES {
        for (mode, key) in [("SHADOW", "s"), ("", "e"), ("OFF", "o"), ("BLOCK", "b")] {
            set(&mut client, &format!("p {mode} {algorithm} {limits}"));
            for _ in 0..7 {
                decide(&mut client, &format!("RL.USE {key}:{algorithm} p"));
            }
            client.call(&[
                "RL.ALL",
                &format!("all:{key}:{algorithm}"),
                "USE p",
                "x",
                "FIXED 900 1h",
            ]);
        }
        // The policy's algorithm has changed, so the call replaces the key's state.
        client.integer("RL.POLICY DEL p");
        set(&mut client, &format!("p {algorithm} {limits}"));
        decide(&mut client, "RL.USE changing p");
        client.integer("RL.POLICY DEL p");
    }
    assert_eq!(client.integer("WAIT 1 60000"), 1);
    let contents = client.contents();
    let count =
        |prefix: &str| contents.iter().filter(|row| row.0.starts_with(prefix.as_bytes())).count();
    assert_eq!(["s:", "e:", "all:s", "all:e"].map(count), [RULES.len(); 4]);
    assert_eq!(["o:", "b:", "all:o", "all:b"].map(count), [0; 4]);
    let mut follower = replica.client();
    assert_eq!(follower.contents(), contents, "the replica");
    // The replica refuses calls that decide, and serves reads. It has its own policies.
    assert!(follower.error("RL.USE s:GCRA p DEFAULT GCRA 5 5 1h").starts_with("READONLY"));
    assert_eq!(decide(&mut follower, "RL.PEEK s:GCRA USE p DEFAULT GCRA 5 5 1h")[..3], [0, 5, 0]);
    assert_eq!(follower.error("RL.PEEK s:GCRA USE p"), "NOPOLICY no such policy");
    primary.crash();
    primary.start_again();
    let mut client = primary.client();
    assert_eq!(client.contents(), contents, "after the kill");
    assert_eq!(client.error("RL.USE s:GCRA p"), "NOPOLICY no such policy");
}
