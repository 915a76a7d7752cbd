//! Admissions: what is settled, what is refused, and the events of the ends.

use std::sync::{Arc, Mutex};

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{
    Admission, DecisionEvent, Error, EventKind, Item, OnError, Options, QuotaUnit, Rule, RuleOrItem,
};

use crate::{allowed, api, commands, first_denied, ms, times};

fn month() -> Rule {
    Rule::quota("month", 1000, QuotaUnit::Month).unwrap()
}

fn jobs() -> Rule {
    Rule::lease("jobs", 1, "60s").unwrap()
}

fn named(error: &Error) -> &'static str {
    match error {
        Error::InvalidArgument { argument, .. } => argument,
        other => panic!("{other}"),
    }
}

/// Settles two units, which is refused. Returns the error's text.
fn refused(admitted: &Admission, of: impl RuleOrItem) -> String {
    let error = admitted.settle(of, 2).unwrap_err();
    assert_eq!(named(&error), "rule");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn settle_takes_a_rule_of_one_item_or_the_item() {
    let server = FakeServer::new();
    let (limiter, api, month, jobs) = (server.limiter(), api(), month(), jobs());
    let login = Rule::backoff("login", 2, "1s", "15m", "1d").unwrap();
    let items = [api.of("a"), api.of("b"), month.of("a").reserve(9), jobs.of("a"), login.of("a")];
    let admitted = limiter.admit(&items, None).await.unwrap();
    assert!(refused(&admitted, &api).contains("the item, not rule api"));
    assert!(refused(&admitted, &Rule::fixed("day", 9, "1d").unwrap()).contains("not rule day"));
    assert!(refused(&admitted, api.of("c")).contains("not rule api"));
    assert!(refused(&admitted, &jobs).contains("not rule jobs"));
    assert!(refused(&admitted, &login).contains("not rule login"));
    let error = admitted.settle(&month, 1_000_000_000_001).unwrap_err();
    assert_eq!(named(&error), "units");
    admitted.settle(api.of("b"), 0).unwrap();
    admitted.settle(&month, 4).unwrap();
    admitted.finish().await;
    assert!(refused(&admitted, &month).contains("month"));
    let wanted = ["RL.ALL", "RL.REFUND", "RL.COMMIT", "RL.RELEASE"];
    assert_eq!(commands(&server), wanted);
    assert_eq!(server.calls()[1][1], "rl:api:b");
    // A second end sends nothing, nor does the drop.
    admitted.finish().await;
    drop(admitted);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(commands(&server), wanted);
}

#[tokio::test(start_paused = true)]
async fn admit_refuses_items_that_do_not_fit_together() {
    let server = FakeServer::new();
    let (limiter, api, month, jobs) = (server.limiter(), api(), month(), jobs());
    let long = "x".repeat(65);
    let refused = async |items: &[Item<'_>]| {
        let error = limiter.admit(items, None).await.unwrap_err();
        named(&error).to_owned()
    };
    assert_eq!(refused(&[]).await, "items");
    assert_eq!(refused(&[api.of("a"), api.of("a")]).await, "items");
    assert_eq!(refused(&[month.of("a").id("h1"), jobs.of("a").id("h2")]).await, "id");
    assert_eq!(refused(&[jobs.of("a").id("h 1")]).await, "id");
    assert_eq!(refused(&[jobs.of("a").id(&long)]).await, "id");
    assert_eq!(refused(&[api.of("a").reserve(1)]).await, "reserve");
    assert_eq!(refused(&[month.of("a").cost(1).reserve(1)]).await, "cost");
    assert_eq!(refused(&[month.of("a").ttl("1s")]).await, "ttl");
    assert_eq!(refused(&[api.of("a").partial()]).await, "partial");
    let fetched = Rule::fixed("fetched", 9, "1d").unwrap().prefetch(5).unwrap();
    for (wanted, item) in [
        ("rule", fetched.of("a").reserve(1)),
        ("leave", api.of("a").leave_percent(101)),
        ("partial", api.of("a").cost(0).partial()),
    ] {
        assert_eq!(named(&limiter.check(item).await.unwrap_err()), wanted);
    }
    assert_eq!(named(&limiter.wait(api.of("a").partial(), ms(1)).await.unwrap_err()), "partial");
    assert_eq!(named(&limiter.refund(api.of("a").leave(1)).await.unwrap_err()), "leave");
    assert_eq!(server.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn ends_are_events() {
    let server = FakeServer::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = seen.clone();
    let record = move |event: &DecisionEvent<'_>| {
        let outcome = (event.decision.is_some(), event.error.is_some());
        events.lock().unwrap().push((event.kind, event.rule.name().to_owned(), outcome));
    };
    let limiter = server.limiter_with(Options::default().on_decision(record)).unwrap();
    let (api, month, day, jobs) = (api(), month(), Rule::fixed("day", 99, "1d").unwrap(), jobs());
    let items =
        [api.of("a").cost(2), month.of("a").reserve(9), day.of("a").reserve(9), jobs.of("a")];
    let admitted = limiter.admit(&items, Some("t")).await.unwrap();
    admitted.settle(&api, 1).unwrap();
    admitted.settle(&month, 9).unwrap();
    admitted.finish().await;
    // The replies to the ends may arrive in any order.
    let mut events = std::mem::take(&mut *seen.lock().unwrap());
    events[1..].sort_by(|one, other| one.1.cmp(&other.1));
    let of = |kind, rule: &str| (kind, rule.to_owned(), (true, false));
    let wanted = [
        of(EventKind::Check, "jobs"),
        of(EventKind::Refund, "api"),
        of(EventKind::Cancel, "day"),
        of(EventKind::Commit, "month"),
    ];
    assert_eq!(events, wanted);
}

#[tokio::test(start_paused = true)]
async fn unknown_reservation_is_charged_if_the_earlier_commits_were_not_sent() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().breaker_failures(1)).unwrap();
    let month = month();
    let held = limiter.reserve(month.of("a").cost(9)).await.unwrap();
    limiter.forget(month.of("a")).await.unwrap();
    // The connection is lost. So is the next one, before it replies: the breaker opens.
    server.go_away();
    for _ in 0..2 {
        assert!(limiter.check(api().of("a")).await.unwrap().degraded);
    }
    let before = server.calls().len();
    held.commit(5).await.unwrap();
    assert_eq!(server.calls().len(), before);
    server.recover();
    tokio::time::sleep(ms(5000)).await;
    assert_eq!(commands(&server)[before..], ["RL.COMMIT", "RL.CHARGE"]);
    let left = limiter.peek(month.of("a").cost(0)).await.unwrap().remaining;
    assert_eq!((left, limiter.counters().unsettled), (995, 0));
}

#[tokio::test(start_paused = true)]
async fn reservation_takes_the_cost_of_its_item() {
    let server = FakeServer::new();
    let (limiter, month) = (server.limiter(), month());
    let held = limiter.reserve(month.of("a").cost(600).tag("t").id("r1")).await.unwrap();
    assert_eq!((held.id(), held.held(), held.decision().remaining), ("r1", true, 400));
    let words = ["RL.ALL", "rl:{t}:month:a", "RESERVE r1 30 QUOTA 1000 month COST 600"];
    assert_eq!(server.calls()[0], words);
    let denied = limiter.reserve(month.of("a").reserve(500).tag("t").ttl("5s")).await;
    assert!(matches!(denied, Err(Error::Denied(decision)) if decision.remaining == 400));
    drop(held);
    tokio::time::sleep(ms(1)).await;
    let peeked = limiter.peek(month.of("a").cost(0).tag("t")).await.unwrap();
    assert_eq!(peeked.remaining, 1000);
}

#[tokio::test(start_paused = true)]
async fn local_limits_decide_an_admission_with_all_its_options() {
    let server = FakeServer::new();
    server.go_away();
    let limiter = server.limiter_with(Options::default().on_error(OnError::Local)).unwrap();
    let day = Rule::fixed("day", 10, "1d").unwrap();
    let admitted = limiter.admit(&[day.of("a").reserve(6)], None).await.unwrap();
    assert!(admitted.decision().degraded && admitted.held());
    assert!(matches!(limiter.reserve(day.of("a").cost(6)).await, Err(Error::Denied(_))));
    admitted.finish().await;
    // Nothing is sent for what this process decided.
    assert!(!commands(&server).contains(&"RL.CANCEL".to_owned()));
    assert!(limiter.check(day.of("a").cost(2).leave_percent(20)).await.unwrap().allowed);
    assert!(!limiter.check(day.of("a").leave(2)).await.unwrap().allowed);
    let part = limiter.check(day.of("a").cost(9).partial().leave(1)).await.unwrap();
    assert_eq!((part.granted, part.remaining), (1, 1));
    assert!(!limiter.check(day.of("a").cost(9).partial().leave(1)).await.unwrap().allowed);
    assert!(limiter.check(day.of("a").leave(10)).await.unwrap().never());
}

#[tokio::test(start_paused = true)]
async fn admission_leaves_no_known_denial_and_uses_none() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let [hour, day] = ["hour", "day"].map(|name| Rule::fixed(name, 1, "1d").unwrap());
    let admitted = limiter.admit(&[hour.of("42")], None).await.unwrap();
    let denied = limiter.admit(&[hour.of("42")], None).await.unwrap_err();
    assert!(matches!(denied, Error::Denied(_)), "{denied}");
    assert_eq!(allowed(&times(&limiter, &day, 2).await), first_denied(1));
    server.go_away();
    assert!(limiter.check(hour.of("42")).await.unwrap().allowed);
    let degraded = limiter.admit(&[day.of("42")], None).await.unwrap();
    assert!(degraded.decision().degraded);
    assert!(!limiter.check(day.of("42")).await.unwrap().allowed);
    drop((admitted, degraded));
}
