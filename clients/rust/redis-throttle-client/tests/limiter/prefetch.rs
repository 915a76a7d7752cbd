//! Permits that are fetched in advance.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Decision, Error, Limiter, OnError, Options, Rule, Source};
use tokio::time::{Instant, advance};

use crate::{allowed, api, first_denied, ms, times};

fn prefetching(server: &FakeServer, permits: u64) -> Limiter {
    server.limiter_with(Options::default().prefetch(permits)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_call_fetches_for_many() {
    let server = FakeServer::new();
    let found = times(&prefetching(&server, 4), &api(), 7).await;
    assert_eq!(allowed(&found), first_denied(6));
    let remaining: Vec<_> = found.iter().map(|decision| decision.remaining).collect();
    assert_eq!(remaining, [5, 4, 3, 2, 1, 0, 0]);
    let asked = |decision: &Decision| decision.source == Source::Server;
    let sources: Vec<_> = found.iter().map(asked).collect();
    assert_eq!(sources, [true, false, false, false, true, false, true]);
    assert!(server.calls().iter().all(|call| call.ends_with(&["4".into(), "PARTIAL".into()])));
}

#[tokio::test(start_paused = true)]
async fn by_default_nothing_is_fetched_in_advance() {
    let server = FakeServer::new();
    times(&server.limiter(), &api(), 2).await;
    assert!(server.calls().iter().all(|call| call.len() == 5));
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_says_how_many_goes_before_the_limiter() {
    let server = FakeServer::new();
    let plain = |name| Rule::gcra(name, 100, 100, "60s").unwrap();
    let (hot, cold) = (plain("hot").prefetch(10).unwrap(), plain("cold").prefetch(1).unwrap());
    times(&server.limiter(), &hot, 1).await;
    let limiter = prefetching(&server, 4);
    for rule in [hot, cold, plain("warm")] {
        times(&limiter, &rule, 1).await;
    }
    let asked: Vec<_> = server.calls().iter().map(|call| call[5..].join(" ")).collect();
    assert_eq!(asked, ["COST 10 PARTIAL", "COST 10 PARTIAL", "", "COST 4 PARTIAL"]);
    let jobs = Rule::lease("jobs", 3, "60s").unwrap().prefetch(2).unwrap_err();
    assert!(matches!(jobs, Error::InvalidArgument { argument: "prefetch", .. }), "{jobs}");
}

/// The plan of a customer has changed, and its rule has the same name.
#[tokio::test(start_paused = true)]
async fn permits_are_of_one_rule() {
    let server = FakeServer::new();
    let limiter = prefetching(&server, 4);
    for limit in [100, 5] {
        let plan = Rule::gcra("plan", limit, limit, "60s").unwrap();
        assert_eq!(times(&limiter, &plan, 1).await[0].limit, limit);
    }
}

#[tokio::test(start_paused = true)]
async fn permits_lapse_with_the_reset_of_their_grant() {
    let server = FakeServer::new();
    let (limiter, api) = (prefetching(&server, 4), api());
    times(&limiter, &api, 1).await;
    advance(ms(23_999)).await;
    assert_eq!(times(&limiter, &api, 1).await[0].source, Source::Local);
    advance(ms(1)).await;
    assert_eq!(times(&limiter, &api, 1).await[0].source, Source::Server);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_comes_back_on_close_and_lapsed_permits_do_not() {
    let server = FakeServer::new();
    let (limiter, api) = (prefetching(&server, 4), api());
    times(&limiter, &api, 1).await;
    limiter.close().await;
    let refund = ["RL.REFUND", "rl:api:42", "GCRA", "6", "10", "60", "COST", "3"];
    assert_eq!(server.calls()[1], refund);
    assert_eq!(limiter.peek(api.of("42").cost(0)).await.unwrap().remaining, 5);
    times(&limiter, &api, 1).await;
    advance(ms(30_000)).await;
    let asked = server.calls().len();
    limiter.close().await;
    assert_eq!(server.calls().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn some_are_not_fetched_in_advance() {
    let server = FakeServer::new();
    let limiter = prefetching(&server, 4);
    let queue = Rule::leaky_bucket("q", 9, 9, "9s").unwrap();
    let policy = Rule::policy("p").unwrap().or_default(api()).unwrap();
    let login = Rule::backoff("login", 3, "1s", "15m", "1d").unwrap();
    let api = api();
    for call in [queue.of("42"), policy.of("42"), login.of("42"), api.of("42").cost(2)] {
        let _ = limiter.check(call).await.unwrap();
    }
    assert!(server.calls().iter().flatten().all(|word| word != "PARTIAL"));
}

async fn at_once(limiter: &Limiter, rule: &Rule, count: usize) -> Vec<Decision> {
    let ask = |_| {
        let (limiter, rule) = (limiter.clone(), rule.clone());
        tokio::spawn(async move { limiter.check(rule.of("42")).await.unwrap() })
    };
    let asking: Vec<_> = (0..count).map(ask).collect();
    let mut found = Vec::new();
    for asked in asking {
        found.push(asked.await.unwrap());
    }
    found
}

#[tokio::test(start_paused = true)]
async fn many_at_once_fetch_once_and_pass_no_more_than_the_limit() {
    let server = FakeServer::new();
    let big = Rule::gcra("big", 1000, 1000, "60s").unwrap();
    let found = at_once(&prefetching(&server, 100), &big, 100).await;
    assert!(found.iter().all(|decision| decision.allowed));
    assert_eq!(server.calls().len(), 1);

    let server = FakeServer::new();
    let found = at_once(&prefetching(&server, 4), &api(), 100).await;
    assert_eq!(found.iter().filter(|decision| decision.allowed).count(), 6);
    // Who waits while one is denied hears the same, and does not ask again.
    assert_eq!(server.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_fetch_waits_no_longer_than_the_time_out() {
    let server = FakeServer::new();
    server.hang();
    let began = Instant::now();
    let closed = api().on_error(OnError::Deny).unwrap();
    let found = at_once(&prefetching(&server, 4), &closed, 50).await;
    assert!(found.iter().all(|decision| !decision.allowed));
    assert_eq!(began.elapsed(), ms(100));
}
