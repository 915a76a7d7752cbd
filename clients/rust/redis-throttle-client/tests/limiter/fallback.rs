//! Calls that the server does not decide.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Backend, Error, OnError, Options, Rule, Source};

use crate::{allowed, api, first_denied, ms, times};

#[tokio::test(start_paused = true)]
async fn local_share_is_one_by_default_and_below_one_unit_lengthens_the_window() {
    let server = FakeServer::new();
    server.go_away();
    let limiter = server.limiter();
    let whole = Rule::fixed("whole", 3, "60s").unwrap().on_error(OnError::Local).unwrap();
    assert_eq!(allowed(&times(&limiter, &whole, 4).await), first_denied(3));
    let half = Rule::fixed("half", 1, "60s").unwrap().on_error(OnError::Local).unwrap();
    let half = half.local_share(0.5).unwrap();
    let found = times(&limiter, &half, 2).await;
    assert_eq!((found[0].allowed, found[1].retry_after), (true, ms(120_000)));
}

#[tokio::test(start_paused = true)]
async fn cost_above_the_local_share_is_denied_with_a_retry_time() {
    let server = FakeServer::new();
    server.go_away();
    let rule = Rule::gcra("api", 60, 60, "60s").unwrap().on_error(OnError::Local).unwrap();
    let rule = rule.local_share(0.1).unwrap();
    let limiter = server.limiter();
    assert_eq!(limiter.check(rule.of("42").cost(7)).await.unwrap().retry_after, ms(1000));
    assert!(limiter.check(rule.of("42").cost(61)).await.unwrap().never());
}

#[tokio::test(start_paused = true)]
async fn policy_falls_back_to_its_default_rule_without_the_server() {
    let server = FakeServer::new();
    server.go_away();
    let default = Rule::gcra("x", 2, 1, "1s").unwrap();
    let rule = Rule::policy("search").unwrap().default(default).unwrap();
    let rule = rule.on_error(OnError::Local).unwrap();
    assert_eq!(allowed(&times(&server.limiter(), &rule, 3).await), first_denied(2));
}

#[tokio::test(start_paused = true)]
async fn rule_without_on_error_uses_that_of_the_limiter() {
    let server = FakeServer::new();
    server.go_away();
    let (silent, open) = (api(), api().on_error(OnError::Allow).unwrap());
    let closed = server.limiter_with(Options::default().on_error(OnError::Deny)).unwrap();
    assert!(!closed.check(silent.of("42")).await.unwrap().allowed);
    assert!(closed.check(open.of("42")).await.unwrap().allowed);
    let local = server.limiter_with(Options::default().on_error(OnError::Local)).unwrap();
    assert_eq!(local.check(silent.of("42")).await.unwrap().source, Source::Local);
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let error = local.lease(jobs.of("42")).await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "on_error", .. }), "{error}");
    let jobs = jobs.on_error(OnError::Allow).unwrap();
    assert!(local.lease(jobs.of("42")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn rejected_command_is_an_error_under_every_on_error_and_counted() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().backend(Backend::Module)).unwrap();
    for reply in ["WRONGTYPE x", "ERR unknown command 'RL.GCRA'", "NOPERM x", "NOPOLICY x"] {
        server.reply_with(reply);
        for rule in [api(), api().on_error(OnError::Local).unwrap()] {
            let error = limiter.check(rule.of("42")).await.unwrap_err();
            assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
        }
    }
    // A rejected command does not open the circuit breaker either.
    assert_eq!((limiter.counters().rejected, server.calls().len() as u64), (8, 8));
    server.reply_with("ERR unknown command 'RL.GCRA'");
    let error = limiter.check(api().of("42")).await.unwrap_err().to_string();
    assert!(error.contains("is the module loaded"), "{error}");
}
