//! The limiter against real servers.

mod admissions;
mod backends;
mod fake;
mod healing;
mod items;
mod lab;
mod pressure;
mod promise_sent_once;
mod proxy;
mod server;
mod within;

use std::time::Duration;

use redis_throttle_client::{Backend, Error, Limiter, Options, QuotaUnit, Rule, Source};
use server::{Server, backend, until};

fn api() -> Rule {
    Rule::gcra("api", 6, 10, "60s").unwrap()
}

/// Returns options with a timeout that even a busy machine meets.
fn patient() -> Options {
    Options::default().timeout(ms(60_000))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn limiter(server: &Server) -> Limiter {
    Limiter::with_options(server.client(), patient()).unwrap()
}

#[tokio::test]
async fn limiter_returns_the_decisions_of_the_server() {
    let server = Server::start().await;
    server.freeze().await;
    let config = redis::AsyncConnectionConfig::new();
    let configured = Limiter::with_options((server.client(), config), patient()).unwrap();
    let limiters = [limiter(&server), configured];
    for (limiter, subject) in limiters.iter().zip(["a", "b"]) {
        assert_eq!(limiter.ready().await.unwrap(), backend());
        let api = api();
        for left in (0..6).rev() {
            let decision = limiter.check(api.of(subject)).await.unwrap();
            assert_eq!((decision.allowed, decision.remaining), (true, left));
            assert_eq!((decision.source, decision.limit), (Source::Server, 6));
        }
        let denied = limiter.check(api.of(subject)).await.unwrap();
        assert_eq!((denied.allowed, denied.retry_after), (false, ms(6000)));
        assert_eq!(denied.reset_after, ms(36_000));
        assert!(limiter.check(api.of(subject).cost(7)).await.unwrap().never());
        assert_eq!(limiter.refund(api.of(subject).cost(2)).await.unwrap().remaining, 2);
        assert!(limiter.peek(api.of(subject).cost(2)).await.unwrap().allowed);
        assert!(!limiter.charge(api.of(subject).cost(3)).await.unwrap().allowed);
        limiter.forget(api.of(subject)).await.unwrap();
        assert_eq!(limiter.check(api.of(subject)).await.unwrap().remaining, 5);
    }
}

#[tokio::test]
async fn server_accepts_every_kind_of_rule() {
    let server = Server::start().await;
    server.freeze().await;
    let limiter = limiter(&server);
    let quota = Rule::quota("q", 2, QuotaUnit::Month).unwrap().zone("Europe/Berlin").unwrap();
    for rule in [
        Rule::token_bucket("tb", 2, 1, "1s").unwrap(),
        Rule::leaky_bucket("lb", 2, 1, "1s").unwrap(),
        Rule::fixed("fx", 2, "1m").unwrap(),
        Rule::fixed("al", 2, "1m").unwrap().aligned().unwrap(),
        Rule::sliding("sl", 2, "1m").unwrap(),
        Rule::sliding_log("sg", 2, "1m").unwrap(),
        Rule::backoff("bo", 2, "1s", "15m", "1d").unwrap(),
        quota.start(31).unwrap(),
        Rule::policy("unknown").unwrap().default(Rule::fixed("x", 2, "1m").unwrap()).unwrap(),
    ] {
        if rule.name() == "q" && backend() != Backend::Module {
            let error = limiter.check(rule.of("42")).await.unwrap_err();
            assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
            assert!(error.to_string().contains("needs the redis-throttle module"), "{error}");
            continue;
        }
        for wanted in [true, true, false] {
            let decision = limiter.check(rule.of("42")).await.unwrap();
            assert_eq!((decision.allowed, decision.source), (wanted, Source::Server), "{rule:?}");
            assert_eq!(&*decision.rule, rule.name());
        }
        assert!(!limiter.peek(rule.of("42")).await.unwrap().never());
    }
    let unknown = Rule::policy("unknown").unwrap();
    assert!(matches!(limiter.check(unknown.of("1")).await, Err(Error::CommandRejected { .. })));
}

#[tokio::test]
async fn several_rules_and_a_lease_are_checked_in_one_call() {
    let server = Server::start().await;
    server.freeze().await;
    let limiter = limiter(&server);
    let (api, day, jobs) =
        (api(), Rule::fixed("day", 2, "1d").unwrap(), Rule::lease("jobs", 1, "60s").unwrap());
    let items = [api.of("42"), day.of("acme"), jobs.of("42")];
    let checked = limiter.check_with_leases(&items, None).await.unwrap();
    let (decision, leases) = (checked.decision, checked.leases);
    assert_eq!((decision.allowed, decision.rows.len(), leases.len()), (true, 3, 1));
    let denied = limiter.check_with_leases(&items, None).await.unwrap().decision;
    assert_eq!((denied.allowed, &*denied.rule), (false, "jobs"));
    assert!(leases[0].renew().await.unwrap());
    assert!(matches!(limiter.lease(jobs.of("42")).await, Err(Error::Denied(_))));
    for lease in leases {
        lease.release().await;
    }
    limiter.lease(jobs.of("42")).await.unwrap().release().await;
    assert_eq!(limiter.peek(api.of("42").cost(0)).await.unwrap().remaining, 5);
}
