//! Methods that make more than one call: `check_each` and `wait`.

use std::sync::{Arc, Mutex};

use redis_throttle_client::redis::Value;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{
    Command, Connection, Error, Item, Limiter, Options, Reply, Rule, Source,
};
use tokio::time::Instant;

use crate::{api, ms, over};

#[tokio::test(start_paused = true)]
async fn check_each_refuses_no_items_and_items_that_cannot_be_refunded() {
    let server = FakeServer::new();
    let (limiter, api) = (server.limiter(), api());
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let login = Rule::backoff("login", 2, "1s", "15m", "1d").unwrap();
    let lease = jobs.of("42").id("h1");
    for (named, items) in [
        ("items", &[][..]),
        ("rule", &[api.of("42"), lease]),
        ("rule", &[api.of("42"), login.of("42")]),
    ] {
        let error = limiter.check_each(items).await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == named));
    }
    assert_eq!(server.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn check_each_ranks_the_rules_by_calls_left_then_by_units_and_cost_0_last() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let of = |name, limit| Rule::fixed(name, limit, "1d").unwrap();
    let (one, two, ten) = (of("one", 1), of("two", 2), of("ten", 10));
    let deciding = async |items: &[Item<'_>]| limiter.check_each(items).await.unwrap().deciding;
    // No further call of either rule is allowed: 4 units are left of one, and none of the other.
    assert_eq!(deciding(&[ten.of("a").cost(6), one.of("a")]).await, 1);
    assert_eq!(deciding(&[one.of("b").cost(0), two.of("b")]).await, 1);
    assert_eq!(deciding(&[two.of("c").cost(2), one.of("c")]).await, 0);
}

/// A server on which another client always takes the first permit.
#[derive(Clone)]
struct Busy(FakeServer);

impl Connection for Busy {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            let _ = self.0.send(command).await;
            self.0.send(command).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn wait_ends_when_the_next_sleep_would_exceed_its_bound() {
    let (limiter, turns) =
        (Limiter::new(over(&Busy(FakeServer::new()))), Rule::gcra("turns", 1, 10, "60s").unwrap());
    let began = Instant::now();
    let waiting = limiter.wait(turns.of("42"), ms(17_999));
    let denied = tokio::time::timeout(ms(60_000), waiting).await.unwrap().unwrap();
    assert_eq!((denied.allowed, began.elapsed()), (false, ms(12_000)));
}

/// A reply, and the time in ms after which it comes.
type Late = (u64, [i64; 5]);

/// A server that returns the next reply for each command.
#[derive(Clone)]
struct Timed(Arc<Mutex<Vec<Late>>>);

impl Connection for Timed {
    fn send<'a>(&'a self, _: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async {
            let (after_ms, reply) = self.0.lock().unwrap().remove(0);
            tokio::time::sleep(ms(after_ms)).await;
            Ok(Value::Array(reply.map(Value::Int).to_vec()))
        })
    }
}

fn timed(timeout_ms: u64, replies: &[Late]) -> Limiter {
    let server = Timed(Arc::new(Mutex::new(replies.to_vec())));
    Limiter::with_options(over(&server), Options::default().timeout(ms(timeout_ms))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn wait_paces_a_call_that_is_allowed_at_the_end_of_its_time() {
    let limiter = timed(100, &[(60, [0, 2, 0, 200, 2000]), (40, [1, 2, 0, 500, 2000])]);
    let turns = Rule::leaky_bucket("turns", 2, 1, "1s").unwrap();
    let began = Instant::now();
    let decision = limiter.wait(turns.of("42"), ms(5000)).await.unwrap();
    assert_eq!((decision.source, decision.allowed), (Source::Server, true));
    assert_eq!(began.elapsed(), ms(60 + 200 + 40 + 500));
}

#[tokio::test(start_paused = true)]
async fn wait_returns_a_denial_at_once_without_time_for_another_check() {
    let limiter = timed(100, &[(100, [0, 6, 0, 6000, 36_000])]);
    let began = Instant::now();
    let decision = limiter.wait(api().of("42"), ms(60_000)).await.unwrap();
    assert_eq!((decision.source, decision.allowed), (Source::Server, false));
    assert_eq!(began.elapsed(), ms(100));
}

#[tokio::test(start_paused = true)]
async fn check_each_waits_for_its_refunds_within_its_time() {
    let (yes, no) = ([1, 6, 5, 0, 6000], [0, 1, 0, 6000, 6000]);
    let limiter = timed(1000, &[(0, yes), (10, no), (900, yes)]);
    let (api, day) = (api(), Rule::fixed("day", 1, "1d").unwrap());
    let began = Instant::now();
    let view = limiter.within(ms(30));
    let denied = view.check_each(&[api.of("42"), day.of("42")]).await.unwrap();
    assert_eq!((&*denied.rule, denied.degraded, began.elapsed()), ("day", false, ms(30)));
    // The refund goes on: close waits for its reply.
    limiter.close().await;
    assert_eq!(began.elapsed(), ms(910));
}
