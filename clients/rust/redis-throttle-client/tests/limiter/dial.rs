//! Connections that fall silent, and dials that do not end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Limiter, Options, Reason};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{api, ms, times};

async fn reason(limiter: &Limiter) -> Option<Reason> {
    times(limiter, &api(), 1).await[0].reason
}

/// Returns a limiter that opens the first connection to one server and the others to another, and
/// its number of dials.
fn first_to(first: &FakeServer, others: &FakeServer) -> (Limiter, Arc<AtomicUsize>) {
    let (first, others, dials) = (first.clone(), others.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = dials.clone();
    let dial = move || {
        let is_first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        std::future::ready(Ok(if is_first { first.clone() } else { others.clone() }))
    };
    let options = Options::default().breaker_failures(2);
    (Limiter::with_options(dial, options).unwrap(), dials)
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_left_though_its_callers_give_up_before_the_timeout() {
    let (silent, server) = (FakeServer::new(), FakeServer::new());
    silent.hang();
    let (limiter, dials) = first_to(&silent, &server);
    let began = Instant::now();
    for at in [0, 60] {
        sleep_until(began + ms(at)).await;
        assert!(timeout(ms(39), reason(&limiter)).await.is_err());
        assert_eq!(dials.load(Ordering::Relaxed), 1);
    }
    // The first call was sent 100 ms ago.
    sleep_until(began + ms(101)).await;
    assert_eq!(reason(&limiter).await, None);
    assert_eq!(dials.load(Ordering::Relaxed), 2);
}

#[test]
fn dial_on_a_runtime_that_does_not_run_holds_no_call_for_longer_than_a_dial_may_take() {
    let runtime = || -> Runtime { Builder::new_current_thread().enable_time().build().unwrap() };
    let (server, dials) = (FakeServer::new(), Arc::new(AtomicUsize::new(0)));
    let counted = dials.clone();
    let dial = move || {
        let (server, is_first) = (server.clone(), counted.fetch_add(1, Ordering::Relaxed) == 0);
        async move {
            if is_first {
                sleep(ms(300)).await;
            }
            Ok(server)
        }
    };
    let limiter = Limiter::new(dial);
    let (idle, running) = (runtime(), runtime());
    assert!(idle.block_on(async { timeout(ms(30), reason(&limiter)).await }).is_err());
    running.block_on(async {
        let began = Instant::now();
        while reason(&limiter).await.is_some() {
            assert!(began.elapsed() < ms(10_000));
            sleep(ms(10)).await;
        }
    });
    assert_eq!(dials.load(Ordering::Relaxed), 2);
    // The first dial ends now, and its connection is not used.
    idle.block_on(async { sleep(ms(1)).await });
    drop(idle);
    assert_eq!(running.block_on(reason(&limiter)), None);
    assert_eq!(dials.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn ready_sends_a_call_that_takes_nothing() {
    let server = FakeServer::new();
    server.limiter().ready().await.unwrap();
    let words = ["RL.PEEK", "rl:ready:ready", "GCRA", "1", "1", "1", "COST", "0"];
    assert_eq!(server.calls(), [words]);
}

#[tokio::test(start_paused = true)]
async fn error_of_ready_says_how_far_the_call_came() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    server.hang();
    let began = Instant::now();
    let silent = limiter.ready().await.unwrap_err().to_string();
    assert!(silent.contains("connected, logged in, no reply to RL.PEEK"), "{silent}");
    assert_eq!(began.elapsed(), ms(5000));
    server.go_away();
    server.recover();
    server.go_away();
    let refused = limiter.ready().await.unwrap_err().to_string();
    assert!(refused.contains("not connected"), "{refused}");
}
