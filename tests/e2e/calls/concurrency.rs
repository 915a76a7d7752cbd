//! Many clients at once: a limit of a thousand allows exactly a thousand calls.

use std::sync::Barrier;
use std::thread;

use support::{ALGORITHMS, Algorithm, Reply, Server};

const CONNECTIONS: usize = 64;
const CALLS: usize = 10_000;
const LIMIT: u64 = 1_000;

/// Makes 10,000 calls on 64 connections that start at the same moment, and returns all replies.
fn rush(server: &Server, call: &str) -> Vec<Reply> {
    let start = Barrier::new(CONNECTIONS);
    thread::scope(|scope| {
        let callers = (0..CONNECTIONS).map(|number| {
            let start = &start;
            scope.spawn(move || {
                let mut client = server.client();
                // The first connections make one call more than the others, so that the total is
                // exact.
                let calls = CALLS / CONNECTIONS + usize::from(number < CALLS % CONNECTIONS);
                start.wait();
                (0..calls).map(|_| client.decide(call)).collect::<Vec<_>>()
            })
        });
        let callers = callers.collect::<Vec<_>>();
        callers.into_iter().flat_map(|caller| caller.join().expect("no caller fails")).collect()
    })
}

fn assert_exactly_the_limit_is_allowed(server: &Server, algorithm: Algorithm) {
    // A limit of a thousand per year: less than one unit returns during the test.
    let call = algorithm.call(algorithm.name, LIMIT, "366d");
    let replies = rush(server, &call);
    assert_eq!(replies.len(), CALLS);
    let (allowed, denied): (Vec<Reply>, Vec<Reply>) =
        replies.into_iter().partition(|reply| reply[0] == 1);
    assert_eq!(allowed.len() as u64, LIMIT, "{call}");
    // Each allowed call reports a different remainder: 999, 998 .. 0, each exactly once.
    let mut remaining = allowed.iter().map(|reply| reply[2]).collect::<Vec<_>>();
    remaining.sort_unstable();
    assert!(remaining.into_iter().eq(0..LIMIT as i64), "{call}");
    assert!(denied.iter().all(|reply| reply[2] == 0 && reply[3] > 0), "{call}");
}

#[test]
fn of_10_000_calls_on_64_connections_exactly_1_000_are_allowed() {
    let server = Server::start();
    for algorithm in ALGORITHMS {
        assert_exactly_the_limit_is_allowed(&server, algorithm);
    }
    server.assert_alive();
}

#[test]
fn keys_do_not_share_a_limit() {
    let server = Server::start();
    for algorithm in ALGORITHMS {
        let allowed = thread::scope(|scope| {
            let callers = (0..16).map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    let key = format!("{}:{number}", algorithm.name);
                    let call = algorithm.call(&key, 20, "366d");
                    (0..50).filter(|_| client.allows(&call)).count()
                })
            });
            let callers = callers.collect::<Vec<_>>();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(allowed, [20; 16], "{}", algorithm.name);
    }
}
