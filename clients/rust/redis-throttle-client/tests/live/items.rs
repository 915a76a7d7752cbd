//! The options of items, bans and policies, on each back end.

use redis_throttle_client::{Backend, Error, Rule, Source};

use crate::server::{Server, backend};
use crate::{api, limiter};

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
    let kept: u64 = server.query(&["EXISTS", "rl:search:t"]).await.unwrap();
    assert_eq!(kept, 1);
    let error = limiter.check(search.of("t")).await.unwrap_err();
    assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    let needs_module = error.to_string().contains("needs the redis-throttle module");
    assert_eq!(needs_module, backend() != Backend::Module, "{error}");
}
