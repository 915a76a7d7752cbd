//! Calls whose replies a proxy drops, with their connections.

use redis_throttle_client::{Backend, Limiter, Rule, Source};

use crate::patient;
use crate::proxy::losing;
use crate::server::Server;

/// The maximum number of calls that get a reply on a connection before it breaks.
const REPLIES_MAX: usize = 9;

/// Returns a function that is true for one of the first calls of a connection that decide or load.
/// Each number of calls is used in turn, so that the reply to each step of a search is lost once.
fn drops() -> impl FnMut() -> Box<dyn FnMut(&str) -> bool + Send> {
    let mut replies = 0;
    move || {
        replies = (replies + 1) % REPLIES_MAX;
        let mut until = replies + 1;
        Box::new(move |request| {
            if ["FCALL", "EVALSHA", "LOAD"].iter().any(|word| request.contains(word)) {
                until = until.saturating_sub(1);
            }
            until == 0
        })
    }
}

#[tokio::test]
async fn limiter_does_not_repeat_calls_whose_replies_are_lost() {
    let server = Server::of(Backend::Functions, &[]).await;
    let many = Rule::gcra("many", 1000, 1, "1h").unwrap();
    for wanted in [Backend::Auto, Backend::Script] {
        let way = losing(server.port, drops()).await;
        let options = patient().backend(wanted).breaker_failures(1_000_000);
        let limiter = Limiter::with_options(redis::Client::open(way).unwrap(), options).unwrap();
        let (subject, mut calls, mut decided) = (format!("{wanted:?}"), 0, 0);
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
                decided += u64::from(decision.source == Source::Server);
            }
            server.run(&["FUNCTION", "FLUSH"]).await;
            server.run(&["SCRIPT", "FLUSH"]).await;
        }
        let counting = Limiter::with_options(server.client(), patient()).unwrap();
        let left = counting.peek(many.of(&subject).cost(0)).await.unwrap().remaining;
        let counts = format!("{wanted:?}: {decided} of {calls}, {left}");
        assert!((decided..=calls).contains(&(1000 - left)), "{counts}");
        assert!((1..calls).contains(&decided), "{counts}");
    }
}
