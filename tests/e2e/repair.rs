//! A state is repaired in one case only: after the clock has stepped back by more than the state's
//! own span. It is then based on the present, and written even if the call is denied.

use redis::PushKind;

use crate::support::algorithms::{FIXED, GCRA, LEAKYBUCKET, SLIDING, SLIDINGLOG, TOKENBUCKET};
use crate::support::{ALGORITHMS, Algorithm, BASE_US, Client, Server};

/// Uses up five per ten seconds at the base.
fn use_up(client: &mut Client, algorithm: Algorithm) -> String {
    client.integer("DEL k");
    client.freeze(BASE_US);
    let call = algorithm.call("k", 5, "10");
    assert!(client.allows(&format!("{call} COST 5")), "{call}");
    call
}

#[test]
fn a_step_back_by_more_than_the_span_is_repaired_by_a_denied_call_once() {
    let server = Server::setup().line("notify-keyspace-events EA").start();
    let mut client = server.client();
    let mut subscriber = server.client3();
    subscriber.subscribe("__keyevent@0__:set");
    for algorithm in ALGORITHMS {
        let call = use_up(&mut client, algorithm);
        let good = client.decide(&call);
        client.advance_ms(-3_600_000);
        let (before, changes) = (client.snapshot("k"), client.changes());
        subscriber.pushed();
        let repaired = client.decide(&call);
        assert_eq!((repaired[0], repaired[2]), (0, 0), "{call}: used stays used");
        // At most one span longer than with a correct clock.
        let most_ms = good[3] + 10_000;
        assert!(repaired[3] <= most_ms, "{call}: {repaired:?}, {good:?} under a good clock");
        assert_ne!(client.snapshot("k"), before, "{call}: nothing was repaired");
        assert!(client.changes() > changes, "{call}: the repair does not count as a change");
        let told = subscriber.pushed();
        assert_eq!(told.len(), 1, "{call}: one event");
        assert_eq!(told[0].kind, PushKind::PMessage);

        // From now on it is an ordinary state: a denial changes nothing.
        let (after, changes) = (client.snapshot("k"), client.changes());
        assert_eq!(client.decide(&call), repaired, "{call}");
        assert_eq!(client.snapshot("k"), after, "{call}");
        assert_eq!(client.changes(), changes, "{call}");
        assert!(subscriber.pushed().is_empty(), "{call}");
        client.advance_ms(repaired[3] - 1);
        assert!(!client.allows(&call), "{call}: 1 ms too early");
        client.advance_ms(1);
        assert!(client.allows(&call), "{call}: as promised after the repair");
    }
}

#[test]
fn a_state_is_repaired_only_when_it_is_further_ahead_than_its_span() {
    // The longest step back without a repair, in ms; one more is repaired.
    let endured: [(Algorithm, i64); 6] = [
        // A window may begin one window from now.
        (FIXED, 10_000),
        (SLIDING, 10_000),
        // So may the newest entry of a log.
        (SLIDINGLOG, 10_000),
        // A bucket may have been written one refill from now.
        (TOKENBUCKET, 10_000),
        (LEAKYBUCKET, 10_000),
        // The arrival time may lie 10 s ahead by the rule, and 2^34 ns = 17.179 s ahead by its
        // stored magnitude.
        (GCRA, 7_179),
    ];
    let server = Server::start();
    let mut client = server.client();
    for (algorithm, back_ms) in endured {
        let call = use_up(&mut client, algorithm);
        let before = client.snapshot("k");
        client.advance_ms(-back_ms);
        let endured = client.decide(&call);
        assert_eq!(endured[0], 0, "{call}");
        assert_eq!(client.snapshot("k"), before, "{call}: repaired {back_ms} ms back");
        // One millisecond more, for the same state.
        client.advance_ms(-1);
        let repaired = client.decide(&call);
        assert_eq!(repaired[0], 0, "{call}");
        assert_ne!(client.snapshot("k"), before, "{call}: not repaired");
        assert!(repaired[3] < endured[3], "{call}: the repair must shorten the wait");
    }
}

#[test]
fn peek_and_cost_zero_repair_nothing() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = use_up(&mut client, algorithm);
        client.advance_ms(-3_600_000);
        let (before, changes) = (client.snapshot("k"), client.changes());
        client.decide(&algorithm.peek("k", 5, "10"));
        client.decide(&format!("{} COST 0", algorithm.peek("k", 5, "10")));
        client.decide(&format!("{call} COST 0"));
        client.run("RL.INSPECT k");
        assert_eq!(client.snapshot("k"), before, "{call}");
        assert_eq!(client.changes(), changes, "{call}");
    }
}

#[test]
fn a_repair_gives_a_persistent_key_its_expiry_back() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = use_up(&mut client, algorithm);
        assert_eq!(client.integer("PERSIST k"), 1, "{call}");
        client.advance_ms(-3_600_000);
        assert!(!client.allows(&call), "{call}");
        assert!(client.integer("PTTL k") > 0, "{call}: a repair leaves no key without expiry");
    }
}

#[test]
fn a_step_forward_gives_one_burst_and_no_more() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = use_up(&mut client, algorithm);
        client.advance_ms(365 * 86_400_000);
        let extra = (0..20).filter(|_| client.allows(&call)).count();
        assert_eq!(extra, 5, "{call}: one burst at the wrong time");
        // When the clock is right again, nothing is given away, and nothing is owed for a year.
        client.advance_ms(-365 * 86_400_000);
        let denied = client.decide(&call);
        assert_eq!((denied[0], denied[2]), (0, 0), "{call}: {denied:?}");
        assert!(denied[3] <= 20_000, "{call}: {denied:?}");
        client.advance_ms(denied[3]);
        assert!(client.allows(&call), "{call}");
    }
}

#[test]
fn partly_used_allowances_survive_a_repair() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.integer("DEL k");
        client.freeze(BASE_US);
        let call = algorithm.call("k", 5, "10");
        assert!(client.allows(&format!("{call} COST 2")), "{call}");
        client.advance_ms(-3_600_000);
        // Three of five are left; the arrival time becomes the latest possible one, which leaves
        // none.
        let left = if algorithm == GCRA { 0 } else { 3 };
        let first = client.decide(&call);
        assert_eq!(first[2], (left - 1).max(0), "{call}: {first:?}");
        assert_eq!(first[0], i64::from(left > 0), "{call}: {first:?}");
    }
}
