//! Calls whose answers a proxy drops, with their connections.

use redis_throttle_client::{Backend, Limiter, Rule, Source};

use crate::patient;
use crate::proxy::losing;
use crate::server::Server;

/// The maximum number of calls that a connection answers before it breaks.
const ANSWERED_MAX: usize = 9;

/// Returns a function that is true for one of the first calls of a connection that decide or load.
/// Each number of calls is used in turn, so that the answer to each step of a search is lost once.
fn drops() -> impl FnMut() -> Box<dyn FnMut(&str) -> bool + Send> {
    let mut answered = 0;
    move || {
        answered = (answered + 1) % ANSWERED_MAX;
        let mut until = answered + 1;
        Box::new(move |request| {
            if ["FCALL", "EVALSHA", "LOAD"].iter().any(|word| request.contains(word)) {
                until = until.saturating_sub(1);
            }
            until == 0
        })
    }
}

#[tokio::test]
async fn limiter_does_not_repeat_calls_whose_answers_are_lost() {
    let server = Server::of(Backend::Functions, &[]).await;
    let many = Rule::gcra("many", 1000, 1, "1h").unwrap();
    for wanted in [Backend::Auto, Backend::Script] {
        let way = losing(server.port, drops()).await;
        let options = patient().backend(wanted).breaker_failures(1_000_000);
        let limiter = Limiter::with_options(redis::Client::open(way).unwrap(), options).unwrap();
        let (subject, mut calls, mut told) = (format!("{wanted:?}"), 0, 0);
        for _ in 0..12 {
            let calling: Vec<_> = (0..8)
                .map(|_| {
                    let (limiter, many, subject) = (limiter.clone(), many.clone(), subject.clone());
                    tokio::spawn(async move { limiter.check(many.of(&subject)).await })
                })
                .collect();
            for call in calling {
                let decision = call.await.unwrap().expect("a decision");
                calls += 1;
                told += u64::from(decision.source == Source::Server);
            }
            server.run(&["FUNCTION", "FLUSH"]).await;
            server.run(&["SCRIPT", "FLUSH"]).await;
        }
        let counting = Limiter::with_options(server.client(), patient()).unwrap();
        let left = counting.peek(many.of(&subject).cost(0)).await.unwrap().remaining;
        assert!((told..=calls).contains(&(1000 - left)), "{wanted:?}: {told} of {calls}, {left}");
        assert!((1..calls).contains(&told), "{wanted:?}: {told} of {calls}");
    }
}
