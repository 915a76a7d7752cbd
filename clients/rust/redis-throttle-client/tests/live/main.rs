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

use std::time::{Duration, Instant};

use redis_throttle_client::{Backend, Error, Limiter, OnError, Options, QuotaUnit, Rule, Source};
use server::{Server, backend, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

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
        Rule::policy("nobody-knows").unwrap().default(Rule::fixed("x", 2, "1m").unwrap()).unwrap(),
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
    let unknown = Rule::policy("nobody-knows").unwrap();
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

#[tokio::test]
async fn close_refunds_unused_permits() {
    let server = Server::start().await;
    server.freeze().await;
    let options = patient().prefetch(100);
    let limiter = Limiter::with_options(server.client(), options).unwrap();
    let big = Rule::gcra("big", 250, 250, "60s").unwrap();
    limiter.ready().await.unwrap();
    let before = server.decided("rl.gcra").await;
    for _ in 0..130 {
        assert!(limiter.check(big.of("42")).await.unwrap().allowed);
    }
    assert_eq!(server.decided("rl.gcra").await - before, 2);
    limiter.close().await;
    assert!(matches!(limiter.check(big.of("42")).await, Err(Error::Closed)));
    let limiter = Limiter::with_options(server.client(), patient().prefetch(100)).unwrap();
    assert_eq!(limiter.peek(big.of("42").cost(0)).await.unwrap().remaining, 120);
    // Concurrent calls never pass more than the limit.
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let (limiter, big) = (limiter.clone(), big.clone());
            tokio::spawn(async move { limiter.check(big.of("42")).await.unwrap().allowed })
        })
        .collect();
    let mut allowed = 0;
    for asked in asking {
        allowed += u32::from(asked.await.unwrap());
    }
    assert_eq!(allowed, 120);
}

#[tokio::test]
async fn rejected_command_is_an_error_under_a_rule_with_on_error_allow() {
    let server = Server::start().await;
    let limiter_there = limiter(&server);
    server.run(&["SET", "rl:api:42", "text"]).await;
    let open = api();
    let error = limiter_there.check(open.of("42")).await.unwrap_err();
    assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    let plain = Server::plain(&[]).await;
    let options = patient().backend(Backend::Module);
    let limiter = Limiter::with_options(plain.client(), options).unwrap();
    let error = limiter.ready().await.unwrap_err();
    assert!(error.to_string().contains("is the module loaded"), "{error}");
    let error = limiter.check(open.of("42")).await.unwrap_err();
    assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
}

#[tokio::test]
async fn full_server_counts_as_unavailable() {
    let server = Server::start().await;
    let limiter = limiter(&server);
    limiter.ready().await.unwrap();
    server.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let decision = limiter.check(api().of("42")).await.unwrap();
    assert_eq!((decision.allowed, decision.source), (true, Source::Error));
    assert!(matches!(limiter.charge(api().of("42")).await, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn call_to_a_hung_server_takes_one_timeout_and_counts_once() {
    let server = Server::start().await;
    let limiter = Limiter::new(server.client());
    until("it answers", async || limiter.ready().await.is_ok()).await;
    let slept = server.hang().await;
    let began = Instant::now();
    let decision = limiter.check(api().of("42")).await.unwrap();
    let took = began.elapsed();
    assert_eq!(decision.source, Source::Error);
    assert!(took >= Duration::from_millis(99) && !slept.is_finished(), "{took:?}");
    slept.await.unwrap().unwrap();
    until("it answers", async || limiter.ready().await.is_ok()).await;
    let patient = Limiter::with_options(server.client(), patient()).unwrap();
    assert!(patient.peek(api().of("42").cost(0)).await.unwrap().remaining >= 5);
}

#[tokio::test]
async fn limiter_does_not_repeat_a_call_when_its_connection_breaks_before_the_answer() {
    // Reads each call and closes the connection, like a server that dies before its answer.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 4096];
            while let Ok(length @ 1..) = socket.read(&mut read).await {
                let text = String::from_utf8_lossy(&read[..length]).into_owned();
                if text.contains("RL.GCRA") {
                    tell.send(()).unwrap();
                    break;
                }
                // The driver's own setup commands: one reply for each.
                let commands = text.matches('*').count();
                socket.write_all("+OK\r\n".repeat(commands).as_bytes()).await.unwrap();
            }
        }
    });
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let limiter = Limiter::with_options(client, patient());
    let decision = limiter.unwrap().check(api().of("42")).await.unwrap();
    assert_eq!(decision.source, Source::Error);
    assert!(told.recv().await.is_some());
    let again = tokio::time::timeout(Duration::from_millis(300), told.recv()).await;
    assert!(again.is_err(), "the call was sent again");
}

#[tokio::test]
async fn limiter_decides_again_after_the_server_returns() {
    let mut server = Server::start().await;
    let options = patient().breaker_pause(ms(20));
    let limiter = Limiter::with_options(server.client(), options).unwrap();
    let closed = api().on_error(OnError::Deny).unwrap();
    assert_eq!(limiter.check(closed.of("42")).await.unwrap().source, Source::Server);
    server.end();
    for _ in 0..20 {
        let refused = limiter.check(closed.of("42")).await.unwrap();
        assert_eq!((refused.allowed, refused.source), (false, Source::Error));
    }
    server.begin().await;
    let back = async || limiter.check(closed.of("back")).await.unwrap().source == Source::Server;
    until("the server decides", back).await;
}

#[tokio::test]
async fn ready_fails_without_a_server() {
    let mut server = Server::start().await;
    server.end();
    let limiter = Limiter::with_options(server.client(), patient()).unwrap();
    assert!(matches!(limiter.ready().await, Err(Error::Unavailable { source: Some(_), .. })));
}

#[tokio::test]
async fn wait_follows_a_leaky_bucket() {
    let server = Server::start().await;
    server.freeze().await;
    let (limiter, queue) = (limiter(&server), Rule::leaky_bucket("q", 4, 5, "1s").unwrap());
    let began = Instant::now();
    for _ in 0..3 {
        assert!(limiter.wait(queue.of("x"), Duration::from_millis(590)).await.unwrap().allowed);
    }
    // The waits are 0, 200 ms and 400 ms; the fourth place is 600 ms away and is refunded.
    assert!(began.elapsed() >= Duration::from_millis(600));
    assert!(!limiter.wait(queue.of("x"), Duration::from_millis(590)).await.unwrap().allowed);
    assert_eq!(limiter.peek(queue.of("x").cost(0)).await.unwrap().remaining, 1);
}
