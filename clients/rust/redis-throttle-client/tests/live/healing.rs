//! Connections that are silent, refused, closed, or lead to another server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_throttle_client::{Error, Limiter, Reason, Source};

use crate::proxy::Proxy;
use crate::server::{Server, until};
use crate::{api, ms, patient};

/// The time within which the server decides again. The breaker's pause is 1.2 s at most; on a busy
/// machine a reply may be late, which costs one more pause. The timelines have the exact times.
const HEALED_WITHIN: Duration = Duration::from_secs(6);

async fn reason(limiter: &Limiter) -> Option<Reason> {
    limiter.check(api().of("42")).await.unwrap().reason
}

/// Calls until the condition holds, for at most [`HEALED_WITHIN`].
async fn soon(limiter: &Limiter, what: &str, wanted: impl Fn(Option<Reason>) -> bool) {
    let began = Instant::now();
    let mut last = reason(limiter).await;
    while !wanted(last) {
        assert!(began.elapsed() < HEALED_WITHIN, "not within 6 s: {what}, but {last:?}");
        tokio::time::sleep(ms(10)).await;
        last = reason(limiter).await;
    }
}

#[tokio::test]
async fn limiter_leaves_silent_connections_and_a_demoted_primary() {
    let (demoted, promoted) = (Server::start().await, Server::start().await);
    let proxy = Proxy::start().await;
    proxy.lead_to(demoted.port);
    let limiter = Limiter::new(redis::Client::open(proxy.url()).unwrap());
    until("the server decides", async || reason(&limiter).await.is_none()).await;

    // The connection falls silent.
    proxy.silence();
    assert_eq!(reason(&limiter).await, Some(Reason::Timeout));
    soon(&limiter, "a new connection decides", |reason| reason.is_none()).await;
    // It falls silent again, and the address leads to the old primary, which is a replica now.
    demoted.run(&["REPLICAOF", "127.0.0.1", &promoted.port.to_string()]).await;
    proxy.silence();
    soon(&limiter, "the replica refuses", |reason| reason == Some(Reason::Server)).await;
    // It leads to the new primary. The connection to the replica stays open.
    proxy.lead_to(promoted.port);
    soon(&limiter, "the new primary decides", |reason| reason.is_none()).await;
    assert!(limiter.check(api().of("42")).await.unwrap().source == Source::Server);
}

#[tokio::test]
async fn connection_closed_while_idle_is_replaced_without_an_error() {
    let server = Server::start().await;
    let limiter = Limiter::with_options(server.client(), patient()).unwrap();
    limiter.ready().await.unwrap();
    for _ in 0..5 {
        assert!(server.query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap() > 0);
        // The driver sees the end of the connection in its own task.
        tokio::time::sleep(ms(20)).await;
        assert_eq!(reason(&limiter).await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_decides_a_call_whose_reply_arrives_while_the_program_is_busy() {
    let server = Server::start().await;
    let limiter = Limiter::new(server.client());
    until("the server decides", async || reason(&limiter).await.is_none()).await;
    server.run(&["CLIENT", "PAUSE", "200", "WRITE"]).await;
    // On the only worker thread.
    let busy = tokio::spawn(async move {
        let call = tokio::spawn(async move { reason(&limiter).await });
        // The call hands its command to the driver, whose task writes it. Then the thread is busy
        // for longer than the deadline, and the reply arrives meanwhile.
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        std::thread::sleep(ms(600));
        call.await.unwrap()
    });
    assert_eq!(busy.await.unwrap(), None);
}

#[tokio::test]
async fn next_dial_gets_new_credentials_from_the_closure() {
    let server = Server::start().await;
    let user = |password| ["ACL", "SETUSER", "app", "on", password, "~*", "&*", "+@all"];
    server.run(&user(">old")).await;
    let password = Arc::new(std::sync::Mutex::new("old"));
    let (known, url) = (password.clone(), server.url());
    let dial = move || {
        let url = url.replace("//", &format!("//app:{}@", *known.lock().unwrap()));
        async move { redis::Client::open(url)?.get_multiplexed_async_connection().await }
    };
    let limiter = Limiter::with_options(dial, patient().breaker_pause(ms(20))).unwrap();
    limiter.ready().await.unwrap();
    server.run(&["ACL", "DELUSER", "app"]).await;
    server.run(&user(">new")).await;
    let rejected =
        async || matches!(limiter.check(api().of("42")).await, Err(Error::CommandRejected { .. }));
    until("the password is refused", rejected).await;
    *password.lock().unwrap() = "new";
    until("the new password is used", async || limiter.ready().await.is_ok()).await;
    assert_eq!(reason(&limiter).await, None);
}
