//! Callers that have less time than the limiter, at a server that was stopped.

use futures_util::future::join_all;
use redis_throttle_client::{Limiter, Reason, Rule, Source};

use crate::server::Server;
use crate::{ms, patient};

#[tokio::test]
async fn view_denies_what_was_denied_while_the_server_is_stopped() {
    let server = Server::start().await;
    let limiter = Limiter::with_options(server.client(), patient().breaker_failures(1)).unwrap();
    limiter.ready().await.unwrap();
    let once = Rule::fixed("once", 1, "1h").unwrap();
    for allowed in [true, false] {
        assert_eq!(limiter.check(once.of("denied")).await.unwrap().allowed, allowed);
    }
    let connections = server.info("stats", "total_connections_received").await;
    server.signal("STOP");
    let view = limiter.within(ms(30));
    for _ in 0..6 {
        let denied = view.check(once.of("denied")).await.unwrap();
        assert_eq!((denied.allowed, denied.source), (false, Source::Local));
        assert_eq!(denied.reason, Some(Reason::Timeout));
    }
    let found = join_all((0..20).map(|_| view.check(once.of("unknown")))).await;
    let allowed = found.iter().filter(|one| one.as_ref().unwrap().allowed).count();
    assert_eq!(allowed, 1);
    server.signal("CONT");
    // The replies that came late are read on the same connection, and no breaker opened.
    let decision = limiter.check(once.of("unknown")).await.unwrap();
    assert_eq!((decision.allowed, decision.source), (false, Source::Server));
    let opened = server.info("stats", "total_connections_received").await - connections;
    assert_eq!(opened, 1, "the test's own connection");
}
