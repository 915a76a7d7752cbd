//! The options of items, bans and policies, on each back end.

use redis_throttle_client::{Backend, Error, Rule, Source};

use crate::server::{Server, backend};
use crate::{api, limiter, ms};

#[tokio::test]
async fn call_leaves_units_and_takes_a_part() {
    let server = Server::start().await;
    server.freeze().await;
    let (limiter, api) = (limiter(&server), api());
    let denied = limiter.check(api.of("t").cost(4).leave_percent(50)).await.unwrap();
    assert_eq!((denied.allowed, denied.never(), denied.remaining), (false, true, 6));
    assert!(limiter.check(api.of("t").cost(3).leave(3)).await.unwrap().allowed);
    let denied = limiter.check(api.of("t").leave(3)).await.unwrap();
    assert_eq!((denied.allowed, denied.retry_after), (false, ms(6000)));
    assert_eq!(limiter.peek(api.of("t").leave(3)).await.unwrap(), denied);
    let part = limiter.check(api.of("t").cost(9).partial().leave(1)).await.unwrap();
    assert_eq!((part.allowed, part.granted, part.remaining), (true, 2, 1));
    let log = Rule::sliding_log("log", 5, "1m").unwrap().slots(16).unwrap();
    assert_eq!(limiter.check(log.of("t").cost(2)).await.unwrap().remaining, 3);
}

#[tokio::test]
async fn blocked_subject_is_denied_until_it_is_forgotten() {
    let server = Server::start().await;
    server.freeze().await;
    let (limiter, api) = (limiter(&server), api());
    limiter.block(api.of("t"), "1h").await.unwrap();
    let denied = limiter.check(api.of("t")).await.unwrap();
    assert_eq!((denied.allowed, denied.retry_after), (false, ms(3_600_000)));
    limiter.forget(api.of("t")).await.unwrap();
    assert!(limiter.check(api.of("t")).await.unwrap().allowed);
    let error = limiter.block(api.of("t"), ms(0)).await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "duration", .. }), "{error}");
}

#[tokio::test]
async fn peek_all_decides_as_check_all_and_takes_nothing() {
    let server = Server::start().await;
    server.freeze().await;
    let (limiter, api) = (limiter(&server), api());
    let day = Rule::fixed("day", 3, "1d").unwrap();
    let items = [api.of("t"), day.of("t").cost(2).leave(1)];
    let peeked = limiter.peek_all(&items, None).await.unwrap();
    assert_eq!((peeked.allowed, peeked.rows.len()), (true, 2));
    assert_eq!(limiter.peek_all(&items, None).await.unwrap(), peeked);
    assert_eq!(limiter.check_all(&items, None).await.unwrap(), peeked);
    let denied = limiter.peek_all(&items, None).await.unwrap();
    assert_eq!((denied.allowed, &*denied.rule), (false, "day"));
}

#[tokio::test]
async fn policy_is_its_default_on_a_server_without_policies() {
    let server = Server::start().await;
    server.freeze().await;
    let limiter = limiter(&server);
    let search = Rule::policy("search").unwrap().variants(["plan:gold"]).unwrap();
    let with_default = search.clone().default(api()).unwrap();
    let item = with_default.of("t");
    let checked = limiter.check(item.cost(2)).await.unwrap();
    assert_eq!((checked.remaining, checked.source), (4, Source::Server));
    assert_eq!(limiter.peek(item.leave(1)).await.unwrap().remaining, 3);
    assert_eq!(limiter.check_all(&[item], None).await.unwrap().rows[0].remaining, 3);
    assert_eq!(limiter.peek_all(&[item], None).await.unwrap().remaining, 2);
    assert_eq!(limiter.refund(item.cost(3)).await.unwrap().remaining, 6);
    assert_eq!(limiter.charge(item).await.unwrap().remaining, 5);
    let kept: u64 = server.ask(&["EXISTS", "rl:search:t"]).await.unwrap();
    assert_eq!(kept, 1);
    let error = limiter.check(search.of("t")).await.unwrap_err();
    assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    let needs_module = error.to_string().contains("needs the redis-throttle module");
    assert_eq!(needs_module, backend() != Backend::Module, "{error}");
}
