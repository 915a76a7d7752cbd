//! The promise of `retry_after_ms`: one millisecond before that time the same call is still denied,
//! and at that time it is allowed. Tested on random schedules, for every algorithm.

use support::algorithms::SLIDINGLOG;
use support::{ALGORITHMS, Algorithm, BASE_US, Client, Random, Reply, Server};

/// The number of denials that the test checks for each set of arguments.
const DENIALS: usize = 12;

/// Returns rules with irregular time spans: the limit of each, and its arguments after the key.
fn arguments(algorithm: Algorithm) -> Vec<(u64, &'static str)> {
    if algorithm.has_rate {
        vec![
            // The time per unit is a whole number of milliseconds.
            (6, "6 10 60"),
            // The time per unit is a third of a second.
            (3, "3 3 1"),
            // A period of 1.5 ms: the time per unit is a fraction of a microsecond.
            (5, "5 7 1.5ms"),
            // Nearly three units per millisecond: every retry time is one millisecond.
            (20, "20 2999 1s"),
            // One unit in two days.
            (2, "2 183 366d"),
            // A capacity of one.
            (1, "1 1 10"),
        ]
    } else {
        vec![
            (15, "15 10"),
            (3, "3 1"),
            // A window that is not a whole number of milliseconds, and not divisible by the limit.
            (7, "7 12.347ms"),
            (1, "1 1ms"),
            (100, "100 60"),
            (2, "2 366d"),
        ]
    }
}

/// Makes calls with random costs until one is denied. Returns that call and its reply.
fn drive_to_a_denial(
    client: &mut Client,
    random: &mut Random,
    call: &str,
    limit: u64,
) -> (String, Reply) {
    loop {
        let call = format!("{call} COST {}", 1 + random.below(limit));
        let reply = client.decide(&call);
        if reply[0] == 0 {
            return (call, reply);
        }
    }
}

fn assert_the_promise_holds(client: &mut Client, call: &str, denied: Reply) {
    let retry_ms = denied[3];
    assert!(retry_ms >= 1, "{call}: a denial names a time: {denied:?}");
    client.advance_ms(retry_ms - 1);
    let early = client.decide(call);
    assert_eq!((early[0], early[3]), (0, 1), "{call}: 1 ms before {denied:?}: {early:?}");
    client.advance_ms(1);
    let due = client.decide(call);
    assert_eq!(due[0], 1, "{call}: at the promised instant of {denied:?}: {due:?}");
}

#[test]
fn denied_call_is_allowed_exactly_at_its_retry_time() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(2);
    for algorithm in ALGORITHMS {
        for (limit, arguments) in arguments(algorithm) {
            let call = format!("{} k {arguments}", algorithm.command);
            // An instant between two milliseconds, because states count microseconds.
            client.freeze(BASE_US + random.below(3_600_000_000) as i64);
            for _ in 0..DENIALS {
                let (call, denied) = drive_to_a_denial(&mut client, &mut random, &call, limit);
                assert_the_promise_holds(&mut client, &call, denied);
                let pause_ms = random.below(1 + denied[3] as u64) as i64;
                client.advance_ms(pause_ms);
            }
            client.integer("DEL k");
        }
    }
}

#[test]
fn retry_time_is_exact_in_aligned_windows() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(3);
    for start in 0..6 {
        client.freeze(BASE_US + start * 1_234_567);
        let call = "RL.FIXED k 4 7.3s ALIGNED";
        let (call, denied) = drive_to_a_denial(&mut client, &mut random, call, 4);
        assert_the_promise_holds(&mut client, &call, denied);
    }
}

#[test]
fn retry_time_is_exact_in_a_log_that_rounds_its_instants() {
    let server = Server::setup().line("rl.sliding-log-slots 16").start();
    let mut client = server.client();
    let mut random = Random::new(4);
    for start in 0..6 {
        client.freeze(BASE_US + start * 987_654_321);
        // Forty units in sixteen slots of 625 ms.
        for _ in 0..4 {
            let call = "RL.SLIDINGLOG k 40 10";
            let (call, denied) = drive_to_a_denial(&mut client, &mut random, call, 40);
            assert_the_promise_holds(&mut client, &call, denied);
            client.advance_ms(random.below(3_000) as i64);
        }
    }
}

#[test]
fn retry_time_is_exact_after_the_clock_has_stepped_back() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        // Steps back of less than the window, of one window, and of several, after which the state
        // is repaired.
        for back_ms in [1, 1_000, 9_999, 10_000, 10_001, 35_000, 86_400_000] {
            let call = algorithm.call("k", 5, "10");
            client.freeze(BASE_US + 123_457);
            assert!(client.allows(&format!("{call} COST 5")), "{call}");
            client.advance_ms(-back_ms);
            let denied = client.decide(&call);
            assert_eq!(denied[0], 0, "{call}: what was used stays used");
            assert_the_promise_holds(&mut client, &call, denied);
            client.integer("DEL k");
        }
    }
}

#[test]
fn key_is_full_again_exactly_at_its_reset_time() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(5);
    for algorithm in ALGORITHMS {
        for (limit, arguments) in arguments(algorithm) {
            client.freeze(BASE_US + random.below(3_600_000_000) as i64);
            let call = format!("{} k {arguments}", algorithm.command);
            let status = format!("{call} COST 0");
            for _ in 0..4 {
                let used = client.decide(&format!("{call} COST {}", 1 + random.below(limit)));
                let reset_ms = used[4];
                assert!(reset_ms >= 1, "{call}: {used:?}");
                client.advance_ms(reset_ms - 1);
                assert_eq!(client.decide(&status)[4], 1, "{call}: 1 ms before {used:?}");
                client.advance_ms(1);
                let whole = [1, limit as i64, limit as i64, 0, 0];
                assert_eq!(client.decide(&status), whole, "{call}: at the end of {used:?}");
            }
            client.integer("DEL k");
        }
    }
}

#[test]
fn calls_allowed_in_any_span_shorter_than_the_window_stay_within_the_algorithms_bound() {
    let server = Server::start();
    let mut client = server.client();
    let (limit, window_ms) = (20, 10_000);
    for algorithm in ALGORITHMS {
        let mut random = Random::new(6);
        let mut allowed_at_ms = Vec::new();
        let mut now_ms: i64 = 4_321;
        let call = algorithm.call("k", limit, "10");
        client.freeze(BASE_US + now_ms * 1_000);
        while now_ms < 80_000 {
            if client.allows(&call) {
                allowed_at_ms.push(now_ms);
            }
            let step_ms = *random.pick(&[0, 0, 0, 0, 1, 60, 200, 1_500]);
            client.advance_ms(step_ms);
            now_ms += step_ms;
        }
        let most = busiest(&allowed_at_ms, window_ms);
        // The log is exact. Other algorithms can allow almost twice the limit: around the edge of a
        // window, or as a burst plus the units that return within the span.
        let bound = if algorithm == SLIDINGLOG { limit } else { 2 * limit - 1 } as usize;
        assert!(most <= bound, "{}: {most} in one window", algorithm.name);
        // The schedule makes enough calls to reach the limit; otherwise the bound would prove
        // nothing.
        assert!(most >= limit as usize, "{}: only {most} in any window", algorithm.name);
        client.integer("DEL k");
    }
}

/// Returns the largest number of events in any span shorter than the window.
fn busiest(at_ms: &[i64], window_ms: i64) -> usize {
    let starts = at_ms.iter().enumerate();
    let counts = starts.map(|(first, start)| {
        at_ms[first..].iter().take_while(|at| **at < start + window_ms).count()
    });
    counts.max().unwrap_or(0)
}
