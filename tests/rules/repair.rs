//! A state is repaired only if the clock has stepped back by more than the state's own span. The
//! repair bases the state on the current time and is written even if the call is denied.

use redis::PushKind;

use support::algorithms::{FIXED, GCRA, LEAKYBUCKET, SLIDING, SLIDINGLOG, TOKENBUCKET};
use support::{ALGORITHMS, Algorithm, BASE_US, Client, Server};

/// Takes all of five units per ten seconds, at [`BASE_US`]. Returns the call.
fn use_up(client: &mut Client, algorithm: Algorithm) -> String {
    client.integer("DEL k");
    client.freeze(BASE_US);
    let call = algorithm.call("k", 5, "10");
    assert!(client.allows(&format!("{call} COST 5")), "{call}");
    call
}

#[test]
fn denied_call_repairs_a_state_once_after_a_step_back_of_more_than_its_span() {
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
        // The wait is at most one span longer than on a correct clock.
        let most_ms = good[3] + 10_000;
        assert!(repaired[3] <= most_ms, "{call}: {repaired:?}, {good:?} under a good clock");
        assert_ne!(client.snapshot("k"), before, "{call}: nothing was repaired");
        assert!(client.changes() > changes, "{call}: the repair does not count as a change");
        let events = subscriber.pushed();
        assert_eq!(events.len(), 1, "{call}: one event");
        assert_eq!(events[0].kind, PushKind::PMessage);

        // Afterwards it is an ordinary state: a denial changes nothing.
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
fn state_is_repaired_only_if_it_is_further_ahead_than_its_span() {
    // The longest step back that needs no repair, in ms. A step of one millisecond more is
    // repaired.
    let endured: [(Algorithm, i64); 6] = [
        // The start of a window may be one window ahead of the clock.
        (FIXED, 10_000),
        (SLIDING, 10_000),
        // The newest entry of a log may be one window ahead of the clock.
        (SLIDINGLOG, 10_000),
        // The update time of a bucket may be ahead of the clock by the time that a full refill
        // takes.
        (TOKENBUCKET, 10_000),
        (LEAKYBUCKET, 10_000),
        // The arrival time may be up to 17.179 s ahead (2^34 ns, the stored magnitude). Without a
        // step back, it is already 10 s ahead.
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
        // One millisecond further back, with the same state.
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
fn repair_sets_an_expiry_on_a_key_that_has_none() {
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
fn step_forward_allows_one_extra_burst_and_no_more() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = use_up(&mut client, algorithm);
        client.advance_ms(365 * 86_400_000);
        let extra = (0..20).filter(|_| client.allows(&call)).count();
        assert_eq!(extra, 5, "{call}: one burst at the wrong time");
        // Once the clock is right again, no call is allowed too early, and none has to wait for a
        // year.
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
        // Three of five units are left. For GCRA, the repair sets the latest possible arrival time,
        // which leaves none.
        let left = if algorithm == GCRA { 0 } else { 3 };
        let first = client.decide(&call);
        assert_eq!(first[2], (left - 1).max(0), "{call}: {first:?}");
        assert_eq!(first[0], i64::from(left > 0), "{call}: {first:?}");
    }
}
