//! PEEK returns the reply of the call that decides, and changes nothing.

use support::{ALGORITHMS, BASE_US, Random, Server};

#[test]
fn peek_returns_the_reply_of_the_call_that_follows() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let mut random = Random::new(7);
        client.freeze(BASE_US + 7_654_321);
        let mut denials = 0;
        for _ in 0..150 {
            let cost = format!("10 COST {}", random.below(8));
            let peeked = client.decide(&algorithm.peek("k", 6, &cost));
            let decided = client.decide(&algorithm.call("k", 6, &cost));
            assert_eq!(peeked, decided, "{} {cost}", algorithm.name);
            denials += i64::from(decided[0] == 0);
            client.advance_ms(random.below(3_000) as i64);
        }
        assert!((20..130).contains(&denials), "{}: {denials} denials", algorithm.name);
        client.integer("DEL k");
    }
}

#[test]
fn peek_accepts_every_option_of_its_algorithm() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US + 3_000_000);
    // Three seconds into an aligned window of 10 s, 7 s are left.
    assert_eq!(client.decide("RL.PEEK k FIXED 5 10 ALIGNED"), [1, 5, 4, 0, 7_000]);
    assert_eq!(client.decide("RL.PEEK k fixed 5 10 COST 2 ALIGNED"), [1, 5, 3, 0, 7_000]);
    assert_eq!(client.decide("RL.PEEK k Fixed 5 10 aligned cost 2"), [1, 5, 3, 0, 7_000]);
    // Without ALIGNED, a window of 10 s would start now.
    assert_eq!(client.decide("RL.PEEK k FIXED 5 10"), [1, 5, 4, 0, 10_000]);
    for algorithm in ALGORITHMS {
        let peek = algorithm.peek("k", 5, "10");
        assert_eq!(client.decide(&format!("{peek} COST 5"))[..4], [1, 5, 0, 0], "{peek}");
        assert_eq!(client.decide(&format!("{peek} COST 6")), [0, 5, 5, -1, 0], "{peek}");
        assert_eq!(client.decide(&peek.to_lowercase())[..4], [1, 5, 4, 0], "{peek}");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn peek_with_cost_zero_returns_the_status_of_a_key() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        let status = format!("{} COST 0", algorithm.peek("k", 5, "1h"));
        assert_eq!(client.decide(&status), [1, 5, 5, 0, 0], "{status}: unknown");
        let used = client.decide(&algorithm.call("k", 5, "1h COST 3"));
        let reply = client.decide(&status);
        assert_eq!((reply[0], reply[2], reply[4]), (1, 2, used[4]), "{status}: after {used:?}");
        client.integer("DEL k");
    }
}

#[test]
fn peek_never_changes_a_key() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.freeze(BASE_US);
        assert!(client.allows(&algorithm.call("k", 5, "10 COST 4")));
        let (before, changes) = (client.snapshot("k"), client.changes());
        // Calls that are allowed, denied, never allowed, on an expired state, and on one far ahead
        // of the clock.
        for (at_ms, cost) in [(0, 1), (0, 2), (0, 6), (60_000, 5), (-86_400_000, 1)] {
            client.freeze(BASE_US + at_ms * 1_000);
            client.decide(&algorithm.peek("k", 5, &format!("10 COST {cost}")));
            assert_eq!(client.snapshot("k"), before, "{} at {at_ms}", algorithm.name);
        }
        assert_eq!(client.changes(), changes, "{}", algorithm.name);
        client.integer("DEL k");
    }
}
