//! Prefetched permits.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{
    Command, Connection, Decision, Error, Limiter, OnError, Options, Reply, Rule, Source,
};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use crate::{SUBJECTS, allowed, api, distant, ms, one, over, times};

fn prefetching(server: &FakeServer, permits: u64) -> Limiter {
    server.limiter_with(Options::default().prefetch(permits)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn prefetch_of_a_rule_overrides_that_of_the_limiter() {
    let server = FakeServer::new();
    let plain = |name| Rule::gcra(name, 100, 100, "60s").unwrap();
    let (hot, cold) = (plain("hot").prefetch(10).unwrap(), plain("cold").prefetch(1).unwrap());
    times(&server.limiter(), &hot, 1).await;
    let limiter = prefetching(&server, 4);
    for rule in [hot, cold, plain("warm")] {
        times(&limiter, &rule, 1).await;
    }
    let costs: Vec<_> = server.calls().iter().map(|call| call[5..].join(" ")).collect();
    assert_eq!(costs, ["COST 10 PARTIAL", "COST 10 PARTIAL", "", "COST 4 PARTIAL"]);
    let jobs = Rule::lease("jobs", 3, "60s").unwrap().prefetch(2).unwrap_err();
    assert!(matches!(jobs, Error::InvalidArgument { argument: "prefetch", .. }), "{jobs}");
}

/// Happens when a customer's plan changes and the new rule has the name of the old one.
#[tokio::test(start_paused = true)]
async fn limiter_does_not_use_permits_of_another_rule_with_the_same_name() {
    let server = FakeServer::new();
    let limiter = prefetching(&server, 4);
    for limit in [100, 5] {
        let plan = Rule::gcra("plan", limit, limit, "60s").unwrap();
        assert_eq!(times(&limiter, &plan, 1).await[0].limit, limit);
    }
}

#[tokio::test(start_paused = true)]
async fn close_refunds_no_expired_permits() {
    let server = FakeServer::new();
    let (limiter, api) = (prefetching(&server, 4), api());
    times(&limiter, &api, 1).await;
    advance(ms(24_000)).await;
    limiter.close().await;
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn limiter_does_not_prefetch_under_rules_that_allow_no_partial_calls() {
    let server = FakeServer::new();
    let limiter = prefetching(&server, 4);
    let queue = Rule::leaky_bucket("q", 9, 9, "9s").unwrap();
    let policy = Rule::policy("p").unwrap().default(api()).unwrap();
    let login = Rule::backoff("login", 3, "1s", "15m", "1d").unwrap();
    let api = api();
    for call in [queue.of("42"), policy.of("42"), login.of("42"), api.of("42").cost(2)] {
        let _ = limiter.check(call).await.unwrap();
    }
    assert!(server.calls().iter().flatten().all(|word| word != "PARTIAL"));
}

/// Starts a call.
fn start(limiter: &Limiter, rule: &Rule) -> JoinHandle<Decision> {
    let (limiter, rule) = (limiter.clone(), rule.clone());
    tokio::spawn(async move { limiter.check(rule.of("42")).await.unwrap() })
}

async fn at_once(limiter: &Limiter, rule: &Rule, count: usize) -> Vec<Decision> {
    let calls: Vec<_> = (0..count).map(|_| start(limiter, rule)).collect();
    let mut found = Vec::new();
    for call in calls {
        found.push(call.await.unwrap());
    }
    found
}

/// The round trip takes more than half of the timeout, so the second fetch comes too late.
#[tokio::test(start_paused = true)]
async fn burst_over_a_slow_link_is_denied_and_not_degraded_after_a_shortfall() {
    let server = FakeServer::new();
    let limiter = distant(&server, [30, 30], Options::default().timeout(ms(100)).prefetch(10));
    let hot = Rule::fixed("hot", 100, "1h").unwrap();
    let began = Instant::now();
    let found = at_once(&limiter, &hot, 200).await;
    assert_eq!(found.iter().filter(|decision| decision.allowed).count(), 100);
    assert!(found.iter().all(|decision| !decision.degraded));
    assert_eq!((began.elapsed(), server.calls().len()), (ms(100), 2));
    let granted = found.iter().filter(|decision| decision.allowed);
    let mut remaining: Vec<_> = granted.map(|decision| decision.remaining).collect();
    remaining.sort_unstable();
    assert_eq!(remaining, (0..100).collect::<Vec<_>>());
}

/// The server did reply, so `on_error` must not allow callers whose permit does not arrive.
#[tokio::test(start_paused = true)]
async fn waiter_is_denied_when_its_permit_does_not_arrive_and_no_time_is_left() {
    let server = FakeServer::new();
    let limiter = distant(&server, [30, 30], Options::default().timeout(ms(100)).prefetch(10));
    for (few, retry_ms) in [
        (Rule::fixed("few", 3, "1h").unwrap(), 3_600_000),
        (Rule::gcra("rate", 3, 1, "10s").unwrap(), 10_000),
    ] {
        let found = at_once(&limiter, &few, 10).await;
        assert_eq!(found.iter().filter(|decision| decision.allowed).count(), 3);
        let denied = found.iter().find(|decision| !decision.allowed).unwrap();
        assert_eq!((denied.source, denied.degraded), (Source::Local, false));
        assert_eq!((denied.retry_after, denied.remaining), (ms(retry_ms), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn caller_that_gives_up_takes_no_permit_from_waiters() {
    let server = FakeServer::new();
    let limiter = distant(&server, [30, 30], Options::default().prefetch(4));
    let first = start(&limiter, &api());
    sleep(ms(10)).await;
    first.abort();
    let found = at_once(&limiter, &crate::api(), 3).await;
    assert!(found.iter().all(|decision| decision.allowed && decision.source == Source::Local));
    assert_eq!(server.calls().len(), 1);
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// Happens when several tests, each with its own runtime, share a limiter.
#[test]
fn fetch_ends_with_its_runtime() {
    let server = FakeServer::new();
    let (limiter, api) = (prefetching(&server, 4), api());
    server.hang();
    runtime().block_on(async {
        start(&limiter, &api);
        sleep(ms(10)).await;
    });
    server.recover();
    let found = runtime().block_on(limiter.check(api.of("42"))).unwrap();
    assert_eq!(found.source, Source::Server);
}

/// Happens when a thread runs async code only now and then.
#[test]
fn caller_does_not_wait_for_a_fetch_of_an_idle_runtime() {
    let server = FakeServer::new();
    let (limiter, api) = (prefetching(&server, 4), api());
    let resting = runtime();
    resting.block_on(async {
        start(&limiter, &api);
        tokio::task::yield_now().await;
    });
    runtime().block_on(async {
        // A fetch has ended after four timeouts, if its runtime runs.
        sleep(ms(4000)).await;
        assert_eq!(limiter.check(api.of("42")).await.unwrap().source, Source::Server);
    });
    drop(resting);
}

/// The waiter's own runtime still runs, and so does the server.
#[test]
fn waiter_starts_a_fetch_when_the_fetching_runtime_ends() {
    let server = FakeServer::new();
    let (limiter, api) = (prefetching(&server, 4), api());
    let ending = runtime();
    ending.block_on(async {
        start(&limiter, &api);
        tokio::task::yield_now().await;
    });
    runtime().block_on(async {
        let waiter = start(&limiter, &api);
        sleep(ms(10)).await;
        ending.shutdown_background();
        assert_eq!(waiter.await.unwrap().source, Source::Server);
    });
}

#[tokio::test(start_paused = true)]
async fn forget_drops_pending_permits() {
    let server = FakeServer::new();
    let limiter = distant(&server, [30, 30], Options::default().prefetch(10));
    let hot = Rule::fixed("hot", 10, "1h").unwrap();
    let waiter = start(&limiter, &hot);
    sleep(ms(1)).await;
    limiter.forget(hot.of("42")).await.unwrap();
    assert!(waiter.await.unwrap().allowed);
    let found = at_once(&limiter, &hot, 40).await;
    assert_eq!(found.iter().filter(|decision| decision.allowed).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn rejected_fetch_returns_its_error_to_every_waiter_and_counts_it_for_each() {
    let server = FakeServer::new();
    server.reply_with("WRONGTYPE no");
    let limiter = distant(&server, [30, 30], Options::default().prefetch(4));
    let api = api();
    let (one, two) = tokio::join!(limiter.check(api.of("42")), limiter.check(api.of("42")));
    assert!(
        matches!(one.unwrap_err(), Error::CommandRejected { .. })
            && matches!(two.unwrap_err(), Error::CommandRejected { .. })
    );
    assert_eq!((server.calls().len(), limiter.counters().rejected), (1, 2));
}

/// An application's own connection that panics.
#[derive(Clone)]
struct Broken;

impl Connection for Broken {
    fn send<'a>(&'a self, _: &'a Command<'a>) -> Reply<'a> {
        panic!("a bug of the program")
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_connection_allows_no_call() {
    let limiter = Limiter::with_options(over(&Broken), Options::default().prefetch(4)).unwrap();
    let check = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(api().of("42")).await })
    };
    let (one, two) = tokio::join!(check(), check());
    assert!(one.unwrap_err().is_panic() && two.unwrap_err().is_panic());
}

#[tokio::test(start_paused = true)]
async fn forget_removes_permits_and_local_state() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().prefetch(4)).unwrap();
    times(&limiter, &api(), 1).await;
    limiter.forget(api().of("42")).await.unwrap();
    assert_eq!(times(&limiter, &api(), 1).await[0].source, Source::Server);
    let local = one().on_error(OnError::Local).unwrap();
    server.go_away();
    assert_eq!(allowed(&times(&limiter, &local, 2).await), [true, false]);
    server.recover();
    limiter.forget(local.of("42")).await.unwrap();
    server.go_away();
    assert_eq!(allowed(&times(&limiter, &local, 1).await), [true]);
}

#[tokio::test(start_paused = true)]
async fn close_refunds_the_permits_of_every_key() {
    let server = FakeServer::new();
    let options = Options::default().prefetch(4).max_in_flight(2);
    let (limiter, api) = (server.limiter_with(options).unwrap(), api());
    for subject in ["a", "b", "c", "d", "e"] {
        let _ = limiter.check(api.of(subject)).await.unwrap();
    }
    limiter.close().await;
    let calls = server.calls();
    let refunds = calls.iter().filter(|call| call[0] == "RL.REFUND");
    assert_eq!(refunds.map(|call| &*call[7]).collect::<Vec<_>>(), ["3"; 5]);
}

#[tokio::test(start_paused = true)]
async fn limiter_keeps_permits_of_a_bounded_number_of_keys() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().prefetch(3)).unwrap();
    let api = api();
    for subject in 0..SUBJECTS {
        let _ = limiter.check(api.of(&subject.to_string())).await.unwrap();
    }
    // The permits of the oldest key were evicted, which only makes the limit stricter.
    let newest = limiter.check(api.of("10000")).await.unwrap();
    let oldest = limiter.check(api.of("0")).await.unwrap();
    assert_eq!((newest.source, oldest.source), (Source::Local, Source::Server));
}
