//! Callers that have less time than the limiter.

use std::future::pending;

use futures_util::future::join_all;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Decision, Error, Limiter, OnError, Options, Reason, Rule, Source};
use tokio::time::Instant;

use crate::{api, commands, ms};

fn once() -> Rule {
    Rule::fixed("once", 1, "1h").unwrap()
}

/// Returns options with which a server that hangs is not silent for long.
fn patient() -> Options {
    Options::default().timeout(ms(60_000)).breaker_failures(1)
}

fn how(decision: &Decision) -> (bool, Source, Option<Reason>) {
    (decision.allowed, decision.source, decision.reason)
}

#[tokio::test(start_paused = true)]
async fn call_ends_at_the_time_of_its_view_and_is_no_failure() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(patient().on_error(OnError::Deny)).unwrap();
    server.hang();
    for _ in 0..6 {
        let began = Instant::now();
        let denied = limiter.within(ms(30)).check(api().of("42")).await.unwrap();
        assert_eq!(how(&denied), (false, Source::Error, Some(Reason::Timeout)));
        assert_eq!(began.elapsed(), ms(30));
    }
    assert_eq!(limiter.open_breakers(), 0);
    server.recover();
    let decision = limiter.within(ms(30)).check(api().of("42")).await.unwrap();
    assert_eq!(decision.source, Source::Server);
}

#[tokio::test(start_paused = true)]
async fn denied_key_stays_denied_and_unknown_key_keeps_its_limit_at_the_end_of_the_time() {
    let server = FakeServer::new();
    let (limiter, once) = (server.limiter_with(patient()).unwrap(), once());
    for allowed in [true, false] {
        assert_eq!(limiter.check(once.of("denied")).await.unwrap().allowed, allowed);
    }
    server.hang();
    let view = limiter.within(ms(30));
    let denied = view.check(once.of("denied")).await.unwrap();
    assert_eq!(how(&denied), (false, Source::Local, Some(Reason::Timeout)));
    let found = join_all((0..5).map(|_| view.check(once.of("unknown")))).await;
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    assert!(found.iter().all(|one| one.degraded && one.reason == Some(Reason::Timeout)));
    assert_eq!(found.iter().filter(|one| one.allowed).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn late_denial_of_a_view_is_remembered() {
    let server = FakeServer::new();
    let (limiter, once) = (server.limiter_with(patient()).unwrap(), once());
    server.hang();
    let view = limiter.within(ms(30));
    join_all((0..2).map(|_| view.check(once.of("42")))).await;
    server.recover();
    let _ = limiter.check(api().of("42")).await.unwrap();
    server.hang();
    let denied = limiter.within(ms(1)).check(once.of("42")).await.unwrap();
    assert_eq!(how(&denied), (false, Source::Local, Some(Reason::Timeout)));
}

#[tokio::test(start_paused = true)]
async fn silent_server_ends_a_call_of_a_longer_view_under_on_error() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let _ = limiter.check(api().of("42")).await.unwrap();
    server.hang();
    let once = once();
    let view = limiter.within(ms(500));
    let found = join_all((0..3).map(|_| view.check(once.of("42")))).await;
    assert!(found.into_iter().all(|one| how(&one.unwrap()).1 == Source::Error));
}

#[tokio::test(start_paused = true)]
async fn first_dial_ends_with_the_time_of_a_view() {
    let never = || pending::<Result<FakeServer, _>>();
    let limiter = Limiter::new(never);
    let began = Instant::now();
    let once = once();
    let view = limiter.within(ms(30));
    let found = join_all((0..3).map(|_| view.check(once.of("42")))).await;
    assert_eq!(began.elapsed(), ms(30));
    let found: Vec<_> = found.into_iter().map(|one| one.unwrap().allowed).collect();
    assert_eq!(found.iter().filter(|allowed| **allowed).count(), 1);
    // A caller with the time of the limiter waits for the dial.
    let decision = limiter.check(once.of("7")).await.unwrap();
    assert_eq!((decision.reason, began.elapsed()), (Some(Reason::Connection), ms(1000)));
}

#[tokio::test(start_paused = true)]
async fn calls_of_several_commands_share_the_time_of_a_view() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(patient()).unwrap();
    server.hang();
    let (one, two) = (api(), Rule::fixed("two", 9, "1h").unwrap());
    let began = Instant::now();
    let both = [one.of("42"), two.of("42")];
    let decision = limiter.within(ms(30)).check_each(&both).await.unwrap();
    assert_eq!((decision.rows.len(), decision.degraded, began.elapsed()), (2, true, ms(30)));
    let late = limiter.within(ms(30)).refund(one.of("42")).await.unwrap_err();
    assert!(matches!(late, Error::Unavailable { reason: Reason::Timeout, .. }), "{late}");
    assert_eq!(began.elapsed(), ms(60));
}

#[tokio::test(start_paused = true)]
async fn caller_with_the_time_of_a_view_leaves_a_fetch_to_others() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(patient().prefetch(10)).unwrap();
    server.hang();
    let (rule, began) = (Rule::fixed("many", 100, "1h").unwrap(), Instant::now());
    let left = limiter.within(ms(30)).check(rule.of("42")).await.unwrap();
    assert_eq!((left.reason, began.elapsed()), (Some(Reason::Timeout), ms(30)));
    server.recover();
    let decision = limiter.check(rule.of("42")).await.unwrap();
    assert_eq!((decision.allowed, decision.source), (true, Source::Local));
    assert_eq!(commands(&server).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn view_sends_nothing_without_time_and_changes_nothing_with_more() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().timeout(ms(7))).unwrap();
    server.hang();
    let began = Instant::now();
    let unsent = limiter.within(ms(0)).check(api().of("42")).await.unwrap();
    assert_eq!((unsent.reason, began.elapsed()), (Some(Reason::Timeout), ms(0)));
    assert_eq!(commands(&server), Vec::<String>::new());
    let view = limiter.within(ms(1000));
    let silent = view.check(api().of("42")).await.unwrap();
    assert_eq!((how(&silent).1, began.elapsed()), (Source::Error, ms(7)));
    // A view of a view has the shorter time.
    let began = Instant::now();
    let view = limiter.within(ms(3)).within(ms(5));
    let _ = view.check(api().of("42")).await.unwrap();
    assert_eq!(began.elapsed(), ms(3));
}

#[tokio::test(start_paused = true)]
async fn late_replies_give_no_second_allowance() {
    for rule in [Rule::gcra("rate", 100, 100, "10s"), Rule::sliding("window", 100, "10s")] {
        let (server, rule) = (FakeServer::new(), rule.unwrap());
        let limiter = server.limiter_with(patient()).unwrap();
        let view = limiter.within(ms(1));
        assert!(limiter.check(rule.of("42").cost(100)).await.unwrap().allowed);
        let denied = limiter.check(rule.of("42")).await.unwrap();
        assert!(!denied.allowed);
        tokio::time::sleep(denied.retry_after).await;
        let mut allowed = 0;
        for _ in 0..10 {
            tokio::time::sleep(ms(100)).await;
            // The server allows the first call and denies the others, but each reply comes late.
            for count in [1, 100] {
                server.hang();
                let found = join_all((0..count).map(|_| view.check(rule.of("42")))).await;
                allowed += found.iter().filter(|one| one.as_ref().unwrap().allowed).count();
                server.recover();
                let _ = limiter.check(api().of("other")).await.unwrap();
            }
        }
        assert!(allowed <= 130, "{allowed} allowed, {}", rule.name());
    }
}
