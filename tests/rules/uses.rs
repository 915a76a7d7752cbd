//! `RL.USE`: the exact reply of a call with a policy, in every mode.

use support::statistics::{Stats, listed};
use support::uses::{RULES, Seven, decide, enforced, set, shadowed};
use support::{BASE_US, Client, Reply, Server, WRONGTYPE, raw_error, text};

/// Options after the policy, and the first integer of the reply if the call is granted in full.
/// `BACKOFF` takes only the first row.
const OPTIONS: [(&str, i64); 8] = [
    ("", 1),
    (" COST 2", 1),
    (" COST 0", 1),
    (" COST 6", 1),
    (" PARTIAL", 1),
    (" COST 3 PARTIAL", 3),
    (" PARTIAL cost 9", 9),
    (" COST 1000000000000 PARTIAL", 1_000_000_000_000),
];

fn options_of(algorithm: &str) -> &'static [(&'static str, i64)] {
    if algorithm == "BACKOFF" { &OPTIONS[..1] } else { &OPTIONS }
}

/// Makes the same calls with a policy in this mode and with its plain rule, first at short and then
/// at long intervals. Asserts that the replies match and that both store the same state.
fn compare(client: &mut Client, mode: &str, seven_of: impl Fn(Reply, i64) -> Seven) {
    for (algorithm, limits) in *RULES {
        client.freeze(BASE_US);
        set(client, &format!("p {mode} {algorithm} {limits}"));
        for (option, full_units) in options_of(algorithm) {
            client.run("DEL k twin");
            for step in 0..12 {
                let five = client.decide(&format!("RL.{algorithm} twin {limits}{option}"));
                let expected = seven_of(five, *full_units);
                let line = format!("p{option}");
                let what = format!("{mode} {algorithm} {limits}{option}, step {step}");
                assert_eq!(
                    decide(client, &format!("RL.PEEK k USE {line}")),
                    expected,
                    "peek {what}"
                );
                assert_eq!(decide(client, &format!("RL.USE k {line}")), expected, "{what}");
                // In every mode that takes units, the policy stores the same as its rule.
                assert_eq!(client.run("GET k"), client.run("GET twin"), "{what}");
                let expiry = client.integer("PEXPIRETIME k");
                let of_twin = client.integer("PEXPIRETIME twin");
                assert!(expiry.abs_diff(of_twin) < 30_000, "{what}: {expiry}, {of_twin}");
                client.advance_ms(if step < 8 { 60_000 } else { 1_800_000 });
            }
        }
        client.integer("RL.POLICY DEL p");
    }
}

#[test]
fn enforced_policy_replies_and_stores_like_its_rule() {
    let server = Server::start();
    for mut client in [server.client(), server.client3()] {
        compare(&mut client, "", |five, _| enforced(five));
    }
    compare(&mut server.client(), "ENFORCE 100", |five, _| enforced(five));
}

#[test]
fn policy_in_shadow_mode_allows_and_stores_like_its_rule() {
    let server = Server::start();
    let mut client = server.client();
    for mode in ["SHADOW", "ENFORCE 0"] {
        compare(&mut client, mode, shadowed);
    }
}

#[test]
fn off_policy_allows_and_replies_as_for_a_new_key() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for (algorithm, limits) in *RULES {
        set(&mut client, &format!("p OFF {algorithm} {limits}"));
        for (option, full_units) in options_of(algorithm) {
            let five = client.decide(&format!("RL.PEEK none {algorithm} {limits}{option}"));
            let expected = shadowed(five, *full_units);
            for _ in 0..8 {
                let call = format!("RL.USE k p{option}");
                assert_eq!(decide(&mut client, &call), expected, "{algorithm} {call}");
                assert_eq!(decide(&mut client, &format!("RL.PEEK k USE p{option}")), expected);
            }
        }
        client.integer("RL.POLICY DEL p");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn blocked_policy_denies_for_ever_or_for_its_remaining_time() {
    let server = Server::start();
    let mut client = server.client();
    for (algorithm, limits) in *RULES {
        client.freeze(BASE_US);
        set(&mut client, &format!("p BLOCK {algorithm} {limits}"));
        for (option, _) in options_of(algorithm) {
            for call in ["RL.USE k p", "RL.PEEK k USE p"] {
                let reply = decide(&mut client, &format!("{call}{option}"));
                assert_eq!(reply, [0, 5, 0, -1, 0, 0, -1], "{algorithm} {call}{option}");
            }
        }
        set(&mut client, &format!("p EX 90s BLOCK {algorithm} {limits}"));
        client.freeze(BASE_US + 500);
        for (option, _) in options_of(algorithm) {
            for call in ["RL.USE k p", "RL.PEEK k USE p"] {
                let reply = decide(&mut client, &format!("{call}{option}"));
                // The wait is rounded up, so that a retry at that time is never too early.
                let expected = [0, 5, 0, 90_000, 90_000, 0, 90_000];
                assert_eq!(reply, expected, "{algorithm} {call}{option}");
            }
        }
        client.advance_ms(89_999);
        assert_eq!(decide(&mut client, "RL.USE k p"), [0, 5, 0, 1, 1, 0, 1]);
        // The earlier definition applies again at exactly this microsecond.
        client.freeze(BASE_US + 90_000_000);
        assert_eq!(decide(&mut client, "RL.USE k p"), [0, 5, 0, -1, 0, 0, -1]);
        client.integer("RL.POLICY DEL p");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn examples_of_the_documentation_are_exact() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // Code is released with limits that work without a policy.
    let shipped = "RL.USE user:1 search DEFAULT GCRA 6 10 60";
    assert_eq!(decide(&mut client, shipped), [1, 6, 5, 0, 6_000, 1, 0]);
    // In shadow mode all three calls are allowed, and the third reply reports a denial.
    set(&mut client, "search SHADOW GCRA 2 1 60");
    assert_eq!(decide(&mut client, "RL.USE user:2 search"), [1, 2, 1, 0, 60_000, 1, 0]);
    assert_eq!(decide(&mut client, "RL.USE user:2 search"), [1, 2, 0, 0, 120_000, 1, 0]);
    client.advance_ms(1);
    assert_eq!(decide(&mut client, "RL.USE user:2 search"), [1, 2, 0, 0, 119_999, 0, 59_999]);
    // Enforced, the next call is denied. With OFF for a minute, every call is allowed.
    set(&mut client, "search GCRA 2 1 60");
    assert_eq!(decide(&mut client, "RL.USE user:2 search"), [0, 2, 0, 59_999, 119_999, 0, 59_999]);
    set(&mut client, "search EX 1m OFF GCRA 2 1 60");
    assert_eq!(decide(&mut client, "RL.USE user:2 search"), [1, 2, 1, 0, 60_000, 1, 0]);
    client.advance_ms(60_000);
    assert_eq!(decide(&mut client, "RL.USE user:2 search"), [1, 2, 0, 0, 119_999, 1, 0]);
    // A leaky bucket in shadow mode: no call waits, and the seventh field reports the wait.
    set(&mut client, "queue SHADOW LEAKYBUCKET 4 2 1s");
    for (wait_ms, left) in [(0, 3), (500, 2), (1_000, 1), (1_500, 0)] {
        let reset_ms = wait_ms + 500;
        let expected = [1, 4, left, 0, reset_ms, 1, wait_ms];
        assert_eq!(decide(&mut client, "RL.USE q queue"), expected);
    }
    assert_eq!(decide(&mut client, "RL.USE q queue"), [1, 4, 0, 0, 2_000, 0, 500]);
    // A batch is granted in part, enforced and in shadow mode.
    set(&mut client, "batch FIXED 10 60");
    assert_eq!(decide(&mut client, "RL.USE b batch COST 7 PARTIAL"), [7, 10, 3, 0, 60_000, 7, 0]);
    assert_eq!(decide(&mut client, "RL.USE b batch COST 7 PARTIAL"), [3, 10, 0, 0, 60_000, 3, 0]);
    set(&mut client, "batch SHADOW FIXED 10 60");
    let none = [7, 10, 0, 0, 60_000, 0, 60_000];
    assert_eq!(decide(&mut client, "RL.USE b batch COST 7 PARTIAL"), none);
}

#[test]
fn customer_variant_precedes_plan_variant_and_plan_precedes_the_policy_itself() {
    let server = Server::start();
    let mut client = server.client();
    let call = "RL.PEEK k USE search FOR tenant:acme FOR plan:gold DEFAULT FIXED 1 60";
    let limit = |client: &mut Client| decide(client, call)[1];
    assert_eq!(limit(&mut client), 1);
    set(&mut client, "search FIXED 10 60");
    assert_eq!(limit(&mut client), 10);
    set(&mut client, "search@plan:gold FIXED 20 60");
    assert_eq!(limit(&mut client), 20);
    set(&mut client, "search@tenant:acme FIXED 30 60");
    assert_eq!(limit(&mut client), 30);
    // Names are case-sensitive and keywords are not. An unknown variant is ignored.
    assert_eq!(decide(&mut client, "RL.PEEK k use search for Tenant:acme")[1], 10);
    assert_eq!(decide(&mut client, "RL.PEEK k use Search default FIXED 2 60")[1], 2);
    client.integer("RL.POLICY DEL search search@tenant:acme");
    assert_eq!(limit(&mut client), 20);
    // An expired override no longer applies, and the base applies again.
    client.freeze(BASE_US);
    set(&mut client, "search@tenant:acme EX 10s FIXED 40 60");
    assert_eq!(limit(&mut client), 40);
    client.advance_ms(10_000);
    assert_eq!(limit(&mut client), 20);
    client.integer("RL.POLICY DEL search@plan:gold");
    assert_eq!(limit(&mut client), 1);
}

#[test]
fn denied_call_with_a_policy_is_allowed_exactly_at_its_retry_time() {
    let server = Server::start();
    let mut client = server.client();
    for (algorithm, limits) in *RULES {
        client.freeze(BASE_US + 123_456);
        set(&mut client, &format!("p {algorithm} {limits}"));
        let denied = loop {
            let reply = decide(&mut client, "RL.USE k p");
            if reply[0] == 0 {
                break reply;
            }
            client.advance_ms(1_001);
        };
        assert!(denied[3] > 0 && denied[6] == denied[3], "{algorithm}: {denied:?}");
        client.advance_ms(denied[3] - 1);
        assert_eq!(decide(&mut client, "RL.USE k p")[0], 0, "{algorithm}: {denied:?}");
        client.advance_ms(1);
        assert_eq!(decide(&mut client, "RL.USE k p")[0], 1, "{algorithm}: {denied:?}");
        client.run("DEL k");
        client.integer("RL.POLICY DEL p");
    }
}

/// Creates a state of each algorithm, under a key that is named after it.
fn one_of_each(client: &mut Client) {
    client.run("FLUSHALL");
    for (algorithm, limits) in *RULES {
        client.decide(&format!("RL.{algorithm} {algorithm} {limits}"));
    }
}

#[test]
fn state_of_the_former_algorithm_counts_as_missing_and_is_replaced() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for (algorithm, limits) in *RULES {
        set(&mut client, &format!("by:{algorithm} {algorithm} {limits}"));
        for (former, _) in RULES.into_iter().filter(|(former, _)| *former != algorithm) {
            let what = format!("{algorithm} after {former}");
            let fresh = client.decide(&format!("RL.PEEK none {algorithm} {limits}"));
            let line = format!("{former} USE by:{algorithm}");
            // The key holds a state of the former algorithm, which a peek and a refund do not
            // change.
            one_of_each(&mut client);
            let before = client.snapshot(former);
            assert_eq!(decide(&mut client, &format!("RL.PEEK {line}")), enforced(fresh), "{what}");
            let refunded = client.decide(&format!("RL.REFUND {line}"));
            assert_eq!((refunded[0], refunded[2], refunded[4]), (1, 5, 0), "{what}");
            assert_eq!(client.snapshot(former), before, "{what}");
            let plain = format!("RL.{algorithm} {former} {limits}");
            assert_eq!(client.error(&plain), WRONGTYPE, "{what}");
            // A call replaces the state, as do a charge and a call with several rules.
            let twin = format!("RL.{algorithm} twin {limits}");
            client.decide(&twin);
            let call = format!("RL.USE {former} by:{algorithm}");
            assert_eq!(decide(&mut client, &call), enforced(fresh), "{what}");
            assert_eq!(client.run(&format!("GET {former}")), client.run("GET twin"), "{what}");
            assert_eq!(client.decide(&plain), client.decide(&twin), "{what}");
            one_of_each(&mut client);
            client.decide(&format!("RL.CHARGE {line}"));
            assert_eq!(client.decide(&plain)[2], 3, "{what}");
            one_of_each(&mut client);
            client.call(&["RL.ALL", former, &format!("USE by:{algorithm}")]);
            assert_eq!(client.decide(&plain)[2], 3, "{what}");
            // The new state has an expiry.
            assert!(client.integer(&format!("PTTL {former}")) > 0, "{what}");
        }
    }
}

/// Returns calls of every command with a policy by `GCRA`, and calls with the same rule as a
/// DEFAULT.
fn calls_by_another_algorithm() -> Vec<Vec<&'static str>> {
    let mut calls = Vec::new();
    for rule in ["by:GCRA", "in-shadow", "new DEFAULT GCRA 5 5 1h", "by:GCRA COST 0"] {
        let of_rule = |before: &[&'static str], after: &[&'static str]| {
            [before, &rule.split(' ').collect::<Vec<_>>(), after].concat()
        };
        calls.push(of_rule(&["RL.USE", "k"], &[]));
        calls.push(of_rule(&["RL.PEEK", "k", "USE"], &[]));
        calls.push(of_rule(&["RL.CHARGE", "k", "USE"], &[]));
        calls.push(of_rule(&["RL.REFUND", "k", "USE"], &[]));
    }
    for command in ["RL.ALL", "RL.PEEKALL"] {
        calls.push(vec![command, "other", "GCRA 5 5 1h", "k", "USE by:GCRA"]);
        calls.push(vec![command, "k", "USE new DEFAULT GCRA 5 5 1h", "other", "GCRA 5 5 1h"]);
    }
    calls
}

#[test]
fn open_reservation_is_not_replaced_by_another_algorithm() {
    let server = Server::start();
    let mut client = server.client();
    set(&mut client, "by:GCRA GCRA 5 5 1h");
    set(&mut client, "in-shadow SHADOW GCRA 5 5 1h");
    set(&mut client, "off OFF GCRA 5 5 1h");
    for rule in ["FIXED 10 1h", "QUOTA 10 month"] {
        client.freeze(BASE_US);
        client.run("FLUSHALL");
        let reserve = format!("RL.RESERVE k a 90s {rule} COST");
        client.decide(&format!("{reserve} 4"));
        let before = client.contents();
        let refuses_all = |client: &mut Client| {
            for call in calls_by_another_algorithm() {
                let error = raw_error(&client.call(&call)).unwrap_or_default();
                assert!(error.starts_with("WRONGTYPE"), "{rule}: {call:?}: {error}");
            }
            assert_eq!(client.contents(), before, "{rule}");
        };
        refuses_all(&mut client);
        // OFF does not open the key. A policy of the key's own algorithm works as before.
        assert_eq!(decide(&mut client, "RL.USE k off")[0], 1);
        assert_eq!(decide(&mut client, &format!("RL.PEEK k USE new DEFAULT {rule}"))[2], 5);
        client.advance_ms(89_999);
        refuses_all(&mut client);
        // A clock that stepped back by more than the TTL does not end the reservation.
        client.freeze(BASE_US - 3_600_000_000);
        refuses_all(&mut client);
        // If the reservation has expired, or is settled or cancelled, the key counts as missing.
        client.freeze(BASE_US + 90_000_000);
        assert_eq!(decide(&mut client, "RL.PEEK k USE by:GCRA")[2], 4, "{rule}");
        for end in ["COMMIT", "CANCEL"] {
            client.decide(&format!("{reserve} 0"));
            assert_eq!(client.error("RL.USE k by:GCRA"), WRONGTYPE, "{rule}");
            client.decide(&format!("RL.{end} k a {rule}"));
            assert_eq!(decide(&mut client, "RL.USE k by:GCRA")[2], 4, "{rule}: {end}");
            client.run("DEL k");
        }
    }
    client.decide("RL.RESERVE k a 90s FIXED 10 1h COST 1");
    client.ok("RL.POLICY RESETSTAT");
    client.error("RL.USE k by:GCRA");
    let counted = listed(&mut client, "RL.POLICY STATS by:GCRA").remove(0).1;
    assert_eq!(counted, Stats { errors: 1, ..Stats::default() });
}

#[test]
fn denied_and_shadow_denied_calls_do_not_replace_the_state_of_the_former_algorithm() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.decide("RL.GCRA k 5 5 1h");
    let before = client.snapshot("k");
    set(&mut client, "p FIXED 3 1h");
    assert_eq!(decide(&mut client, "RL.USE k p COST 4"), [0, 3, 3, -1, 0, 0, -1]);
    assert_eq!(decide(&mut client, "RL.USE k p COST 0"), [1, 3, 3, 0, 0, 1, 0]);
    set(&mut client, "p SHADOW FIXED 3 1h");
    assert_eq!(decide(&mut client, "RL.USE k p COST 4"), [1, 3, 3, 0, 0, 0, -1]);
    set(&mut client, "p OFF FIXED 3 1h");
    assert_eq!(decide(&mut client, "RL.USE k p"), [1, 3, 2, 0, 3_600_000, 1, 0]);
    assert_eq!(client.snapshot("k"), before);
    // A call that is allowed in shadow mode stores its state like any other.
    set(&mut client, "p SHADOW FIXED 3 1h");
    assert_eq!(decide(&mut client, "RL.USE k p"), [1, 3, 2, 0, 3_600_000, 1, 0]);
    assert_eq!(client.decide("RL.FIXED k 3 1h")[2], 1);
}

#[test]
fn charge_and_refund_follow_the_rule_in_shadow_mode_and_rollout() {
    let server = Server::start();
    let mut client = server.client();
    for mode in ["", "SHADOW", "ENFORCE 0", "ENFORCE 50"] {
        for (algorithm, limits) in *RULES {
            client.freeze(BASE_US);
            client.run("DEL k twin");
            set(&mut client, &format!("p {mode} {algorithm} {limits}"));
            let steps = [("CHARGE", 1), ("CHARGE", 7), ("REFUND", 2), ("CHARGE", 0), ("REFUND", 9)];
            for (verb, cost) in steps {
                let cost =
                    if algorithm == "BACKOFF" { "".to_owned() } else { format!(" COST {cost}") };
                let expected = client.decide(&format!("RL.{verb} twin {algorithm} {limits}{cost}"));
                let call = format!("RL.{verb} k USE p{cost} DEFAULT FIXED 99 1");
                assert_eq!(client.decide(&call), expected, "{mode} {algorithm} {call}");
                assert_eq!(client.run("GET k"), client.run("GET twin"), "{mode} {algorithm}");
            }
            client.integer("RL.POLICY DEL p");
        }
    }
    // Nothing is stored: OFF returns what a missing key would, and BLOCK denies.
    client.freeze(BASE_US);
    client.run("FLUSHALL");
    set(&mut client, "p OFF FIXED 10 60");
    assert_eq!(client.decide("RL.CHARGE k USE p COST 12"), [0, 10, 0, 60_000, 60_000]);
    assert_eq!(client.decide("RL.REFUND k USE p COST 12"), [1, 10, 10, 0, 0]);
    set(&mut client, "p BLOCK FIXED 10 60");
    set(&mut client, "p EX 2m BLOCK FIXED 10 60");
    for call in ["RL.CHARGE k USE p", "RL.REFUND k USE p COST 0"] {
        assert_eq!(client.decide(call), [0, 10, 0, 120_000, 120_000], "{call}");
    }
    client.advance_ms(120_000);
    for call in ["RL.CHARGE k USE p", "RL.REFUND k USE p COST 0"] {
        assert_eq!(client.decide(call), [0, 10, 0, -1, 0], "{call}");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn log_rounds_its_instants_by_the_slots_setting_at_the_time_of_the_call() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US + 1);
    client.ok("CONFIG SET rl.sliding-log-slots 16");
    set(&mut client, "p SLIDINGLOG 100 16s");
    for slots in [16, 1_024, 64] {
        client.ok(&format!("CONFIG SET rl.sliding-log-slots {slots}"));
        for call in ["RL.USE k p", "RL.USE k q DEFAULT SLIDINGLOG 100 16s"] {
            client.run("DEL k twin");
            decide(&mut client, call);
            client.decide("RL.SLIDINGLOG twin 100 16s");
            assert_eq!(client.run("GET k"), client.run("GET twin"), "{slots} slots, {call}");
        }
    }
}

#[test]
fn log_with_slots_rounds_by_them_in_every_command_and_under_any_setting() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US + 1);
    set(&mut client, "p SLIDINGLOG 100 16s SLOTS 64");
    assert_eq!(text(&client.run("RL.POLICY GET p")), "p SLIDINGLOG 100 16s SLOTS 64");
    client.ok("CONFIG SET rl.sliding-log-slots 64");
    client.decide("RL.SLIDINGLOG twin 100 16s");
    let expected = client.run("GET twin");
    // 64 slots of 250 ms.
    let rule = "SLIDINGLOG 100 16s SLOTS 64";
    for slots in [16, 1_024, 64] {
        client.ok(&format!("CONFIG SET rl.sliding-log-slots {slots}"));
        let calls = [
            "RL.SLIDINGLOG k 100 16s SLOTS 64".to_owned(),
            "RL.SLIDINGLOG k 100 16s COST 1 slots 064".to_owned(),
            "RL.USE k p".to_owned(),
            format!("RL.USE k q DEFAULT {rule}"),
            format!("RL.CHARGE k {rule}"),
            "RL.CHARGE k USE p".to_owned(),
        ];
        for call in calls {
            client.run("DEL k");
            client.run(&call);
            assert_eq!(client.run("GET k"), expected, "{slots} slots, {call}");
        }
        for rule in [rule, "USE p", "USE q DEFAULT SLIDINGLOG 100 16s SLOTS 64"] {
            client.run("DEL k");
            client.call(&["RL.ALL", "k", rule]);
            assert_eq!(client.run("GET k"), expected, "{slots} slots, {rule}");
        }
        // The last unit comes back at the end of the slot in which it was taken.
        let peek = format!("RL.PEEK k {rule} COST 100");
        assert_eq!(client.decide(&peek), [0, 100, 99, 16_250, 16_250], "{slots} slots");
        client.decide(&format!("RL.REFUND k {rule}"));
        assert_eq!(client.integer("EXISTS k"), 0, "{slots} slots");
    }
}

#[test]
fn charged_log_stores_at_most_twice_its_own_slots_and_one() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for _ in 0..200 {
        client.decide("RL.CHARGE k SLIDINGLOG 10 16s SLOTS 16");
        client.advance_ms(70);
    }
    let len = client.bytes("GET k").len();
    assert!(len <= 20 + 12 * 33, "{len} bytes");
}
