//! Prefetched permits.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{
    Command, Connection, Decision, Error, Limiter, Options, Reply, Rule, Source,
};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use crate::{allowed, api, first_denied, ms, over, times};

fn prefetching(server: &FakeServer, permits: u64) -> Limiter {
    server.limiter_with(Options::default().prefetch(permits)).unwrap()
}

/// A server 30 ms away in each direction.
#[derive(Clone)]
struct Far(FakeServer);

impl Connection for Far {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            sleep(ms(30)).await;
            let reply = self.0.send(command).await;
            sleep(ms(30)).await;
            reply
        })
    }
}

fn far(server: &FakeServer, options: Options) -> Limiter {
    Limiter::with_options(over(&Far(server.clone())), options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_call_fetches_several_permits() {
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
async fn limiter_does_not_prefetch_by_default() {
    let server = FakeServer::new();
    times(&server.limiter(), &api(), 2).await;
    assert!(server.calls().iter().all(|call| call.len() == 5));
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
    let asked: Vec<_> = server.calls().iter().map(|call| call[5..].join(" ")).collect();
    assert_eq!(asked, ["COST 10 PARTIAL", "COST 10 PARTIAL", "", "COST 4 PARTIAL"]);
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
async fn close_refunds_unused_permits_and_ends_calls() {
    let server = FakeServer::new();
    let (limiter, api) = (prefetching(&server, 4), api());
    times(&limiter, &api, 1).await;
    limiter.close().await;
    let refund = ["RL.REFUND", "rl:api:42", "GCRA", "6", "10", "60", "COST", "3"];
    assert_eq!(server.calls()[1..], [refund]);
    let refused = limiter.check(api.of("42")).await;
    assert!(matches!(refused, Err(Error::Closed)));
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
fn begun(limiter: &Limiter, rule: &Rule) -> JoinHandle<Decision> {
    let (limiter, rule) = (limiter.clone(), rule.clone());
    tokio::spawn(async move { limiter.check(rule.of("42")).await.unwrap() })
}

async fn at_once(limiter: &Limiter, rule: &Rule, count: usize) -> Vec<Decision> {
    let asking: Vec<_> = (0..count).map(|_| begun(limiter, rule)).collect();
    let mut found = Vec::new();
    for asked in asking {
        found.push(asked.await.unwrap());
    }
    found
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_fetches_and_stay_within_the_limit() {
    let server = FakeServer::new();
    let big = Rule::gcra("big", 1000, 1000, "60s").unwrap();
    let found = at_once(&prefetching(&server, 100), &big, 100).await;
    assert!(found.iter().all(|decision| decision.allowed));
    assert_eq!(server.calls().len(), 1);

    let server = FakeServer::new();
    let found = at_once(&prefetching(&server, 4), &api(), 100).await;
    assert_eq!(found.iter().filter(|decision| decision.allowed).count(), 6);
    // One fetch is for all callers. Those whose promised permit does not arrive fetch once more,
    // together.
    let costs: Vec<_> = server.calls().iter().map(|call| call[6].clone()).collect();
    assert_eq!(costs, ["100", "94"]);
}

/// The round trip takes more than half of the timeout, so the second fetch comes too late.
#[tokio::test(start_paused = true)]
async fn burst_over_a_slow_link_is_denied_and_not_degraded_after_a_shortfall() {
    let server = FakeServer::new();
    let limiter = far(&server, Options::default().timeout(ms(100)).prefetch(10));
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

/// The server did answer, so `on_error` must not allow callers whose permit does not arrive.
#[tokio::test(start_paused = true)]
async fn waiter_is_denied_when_its_permit_does_not_arrive_and_no_time_is_left() {
    let server = FakeServer::new();
    let limiter = far(&server, Options::default().timeout(ms(100)).prefetch(10));
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
    let limiter = far(&server, Options::default().prefetch(4));
    let first = begun(&limiter, &api());
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
        begun(&limiter, &api);
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
        begun(&limiter, &api);
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
        begun(&limiter, &api);
        tokio::task::yield_now().await;
    });
    runtime().block_on(async {
        let asked = begun(&limiter, &api);
        sleep(ms(10)).await;
        ending.shutdown_background();
        assert_eq!(asked.await.unwrap().source, Source::Server);
    });
}

#[tokio::test(start_paused = true)]
async fn forget_drops_pending_permits() {
    let server = FakeServer::new();
    let limiter = far(&server, Options::default().prefetch(10));
    let hot = Rule::fixed("hot", 10, "1h").unwrap();
    let asked = begun(&limiter, &hot);
    sleep(ms(1)).await;
    limiter.forget(hot.of("42")).await.unwrap();
    assert!(asked.await.unwrap().allowed);
    let found = at_once(&limiter, &hot, 40).await;
    assert_eq!(found.iter().filter(|decision| decision.allowed).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn rejected_fetch_returns_its_error_to_every_waiter_and_counts_it_for_each() {
    let server = FakeServer::new();
    server.reply_with("WRONGTYPE no");
    let limiter = far(&server, Options::default().prefetch(4));
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
    let asking = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(api().of("42")).await })
    };
    let (one, two) = tokio::join!(asking(), asking());
    assert!(one.unwrap_err().is_panic() && two.unwrap_err().is_panic());
}
