//! Every key expires: not before its state has expired, and soon afterwards.

use std::collections::HashMap;

use redis::Value;

use support::algorithms::{FIXED, LEAKYBUCKET, SLIDING, SLIDINGLOG, TOKENBUCKET};
use support::{ALGORITHMS, Algorithm, BASE_US, Client, FROZEN_MARGIN_MS, Server, text};

/// The time that a busy machine may need between two calls of a test.
const SLACK_MS: i64 = 30_000;

/// The numbers of a state by their names in INSPECT.
struct Inspected(HashMap<String, i64>);

impl Inspected {
    fn of(client: &mut Client, key: &str) -> Self {
        let Value::Array(fields) = client.run(&format!("RL.INSPECT {key}")) else {
            panic!("{key} is not there");
        };
        let pairs = fields.chunks(2).filter_map(|pair| match &pair[1] {
            Value::Int(number) => Some((text(&pair[0]), *number)),
            _ => None,
        });
        Self(pairs.collect())
    }

    fn number(&self, name: &str) -> i64 {
        self.0[name]
    }

    /// Returns when this state ends under ten units per hour, in microseconds since the Unix epoch.
    fn end_us(&self, algorithm: Algorithm) -> i64 {
        const HOUR_US: i64 = 3_600_000_000;
        match algorithm {
            FIXED => self.number("window_start_us") + HOUR_US,
            // In the next window, the current window still counts with a weight.
            SLIDING => self.number("window_start_us") + 2 * HOUR_US,
            SLIDINGLOG => self.number("newest_us") + HOUR_US,
            // The fraction is the part of a unit times the period in microseconds.
            TOKENBUCKET => {
                let missing = (10 - self.number("tokens")) * HOUR_US - self.number("fraction");
                self.number("updated_us") + div_ceil(missing, 10)
            }
            LEAKYBUCKET => {
                let held = self.number("level") * HOUR_US + self.number("fraction");
                self.number("updated_us") + div_ceil(held, 10)
            }
            _ => div_ceil(self.number("theoretical_arrival_ns"), 1_000),
        }
    }
}

/// Divides non-negative numbers and rounds up.
fn div_ceil(number: i64, divisor: i64) -> i64 {
    (number + divisor - 1) / divisor
}

/// Returns the time by which a key may outlive its state. The end of a window is fixed. Other
/// states end later with every call, and the expiry is moved only after an eighth of the rule's
/// hour.
fn slack_ms(algorithm: Algorithm) -> i64 {
    if [FIXED, SLIDING].contains(&algorithm) { 0 } else { 450_000 }
}

#[test]
fn key_expires_at_the_end_of_its_state_or_an_eighth_of_its_span_later() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 10, "1h");
        for cost in [1, 3, 2] {
            assert!(client.allows(&format!("{call} COST {cost}")), "{call}");
            let end_ms = div_ceil(Inspected::of(&mut client, "k").end_us(algorithm), 1_000);
            let expiry_ms = client.integer("PEXPIRETIME k");
            let accepted = end_ms..=end_ms + slack_ms(algorithm);
            assert!(accepted.contains(&expiry_ms), "{call} COST {cost}: {expiry_ms}, {end_ms}");
        }
        client.integer("DEL k");
    }
}

#[test]
fn time_to_live_is_the_reset_time_of_the_reply() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 10, "1h");
        for cost in [1, 3, 2] {
            let reset_ms = client.decide(&format!("{call} COST {cost}"))[4];
            let left_ms = client.integer("PTTL k");
            // The expiry, an instant, and the reset time, a span, are each rounded up to a
            // millisecond.
            let expected = reset_ms - SLACK_MS..=reset_ms + 1 + slack_ms(algorithm);
            assert!(expected.contains(&left_ms), "{call}: PTTL {left_ms}, reset {reset_ms}");
        }
        client.integer("DEL k");
    }
}

#[test]
fn every_allowed_call_sets_the_expiry_of_a_key_that_lost_it() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 10, "1h");
        assert!(client.allows(&call));
        for _ in 0..3 {
            assert_eq!(client.integer("PERSIST k"), 1, "{call}: there was an expiry");
            let reset_ms = client.decide(&call)[4];
            let left_ms = client.integer("PTTL k");
            assert!(left_ms >= reset_ms - SLACK_MS, "{call}: PTTL {left_ms}, reset {reset_ms}");
        }
        client.integer("DEL k");
    }
}

#[test]
fn next_allowed_call_corrects_an_expiry_set_by_hand() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 10, "1h");
        // Ten minutes would end the state too early, and ten days would keep it too long.
        for by_hand_ms in [600_000, 864_000_000] {
            assert!(client.allows(&call));
            assert_eq!(client.integer(&format!("PEXPIRE k {by_hand_ms}")), 1);
            let reset_ms = client.decide(&format!("{call} COST 5"))[4];
            let left_ms = client.integer("PTTL k");
            assert!(left_ms >= reset_ms - SLACK_MS, "{call}: PTTL {left_ms}, reset {reset_ms}");
            // The expiry may be an eighth of the window later.
            let most_ms = reset_ms + 3_600_000 / 8 + SLACK_MS;
            assert!(left_ms <= most_ms, "{call}: PTTL {left_ms}, reset {reset_ms}");
            client.integer("DEL k");
        }
    }
}

#[test]
fn denied_call_sets_no_expiry_on_a_key_without_one() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 1, "1h");
        assert!(client.allows(&call));
        assert_eq!(client.integer("PERSIST k"), 1);
        assert!(!client.allows(&call), "{call}");
        assert_eq!(client.integer("PTTL k"), -1, "{call}: a denial changes nothing");
        client.integer("DEL k");
    }
}

#[test]
fn key_of_the_shortest_window_exists_for_the_whole_window() {
    // The state of a limit of one per millisecond lasts for a millisecond or two. The key must
    // exist for that time, and expire by itself.
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 1, "1ms");
        client.run("MULTI");
        client.run(&call);
        client.run("PEXPIRETIME k");
        client.run("TIME");
        let Value::Array(replies) = client.run("EXEC") else { panic!("{call}: no EXEC") };
        let Value::Int(expiry_ms) = replies[1] else { panic!("{call}: {:?}", replies[1]) };
        let Value::Array(time) = &replies[2] else { panic!("{call}: {:?}", replies[2]) };
        let now_us = text(&time[0]).parse::<i64>().unwrap() * 1_000_000
            + text(&time[1]).parse::<i64>().unwrap();
        assert!(expiry_ms > 0, "{call}: the key was gone or had no expiry: {expiry_ms}");
        assert!(expiry_ms * 1_000 <= now_us + 3_000, "{call}: it stays for long");
        support::eventually("the key expires", || (client.integer("EXISTS k") == 0).then_some(()));
    }
}

#[test]
fn on_a_frozen_clock_a_key_lives_for_its_remaining_time_plus_a_day() {
    let server = Server::start();
    let mut client = server.client();
    // In the past, about now, and in the far future: expiry on the real clock must not interfere.
    for unix_us in [0, BASE_US, 7_000_000_000_000_000] {
        for algorithm in ALGORITHMS {
            client.freeze(unix_us);
            let call = algorithm.call("k", 10, "1h");
            let before_ms = client.server_time_us() / 1_000;
            let reset_ms = client.decide(&format!("{call} COST 4"))[4];
            let after_ms = client.server_time_us() / 1_000;
            let expiry_ms = client.integer("PEXPIRETIME k");
            let earliest = before_ms + reset_ms + FROZEN_MARGIN_MS - 1_000;
            let slack_ms = slack_ms(algorithm);
            let latest = after_ms + reset_ms + FROZEN_MARGIN_MS + 1_000 + slack_ms;
            assert!((earliest..=latest).contains(&expiry_ms), "{call}: expires at {expiry_ms}");
            client.integer("DEL k");
        }
    }
}

#[test]
fn expired_state_decides_like_a_missing_key() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.freeze(BASE_US);
        assert!(client.allows(&algorithm.call("expired", 4, "10 COST 4")));
        // The key still exists, because the real clock has not moved by an hour.
        client.advance_ms(3_600_123);
        assert_eq!(client.integer("EXISTS expired"), 1);
        for cost in [0, 3, 5, 1, 1] {
            let of_expired =
                client.decide(&algorithm.call("expired", 4, &format!("10 COST {cost}")));
            let of_missing = client.decide(&algorithm.call("new", 4, &format!("10 COST {cost}")));
            assert_eq!(of_expired, of_missing, "{} COST {cost}", algorithm.name);
        }
        let (expired, new) = (client.bytes("GET expired"), client.bytes("GET new"));
        if algorithm != SLIDINGLOG {
            assert_eq!(expired, new, "{}", algorithm.name);
        }
        client.integer("DEL expired new");
    }
}
