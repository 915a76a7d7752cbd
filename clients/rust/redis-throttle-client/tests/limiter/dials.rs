//! Dials that are slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Dial, Limiter, Options, Reason};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{api, ms, times};

/// Returns a dialler that takes this long, and its number of dials.
fn slow(server: &FakeServer, took: Duration) -> (impl Dial + use<>, Arc<AtomicUsize>) {
    let (server, dials) = (server.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = dials.clone();
    let dial = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let server = server.clone();
        async move {
            sleep(took).await;
            Ok(server)
        }
    };
    (dial, dials)
}

async fn reason(limiter: &Limiter) -> Option<Reason> {
    times(limiter, &api(), 1).await[0].reason
}

#[tokio::test(start_paused = true)]
async fn dial_that_outlasts_its_call_serves_the_next_one() {
    let server = FakeServer::new();
    let (dial, dials) = slow(&server, ms(150));
    let limiter = Limiter::new(dial);
    assert_eq!(reason(&limiter).await, Some(Reason::Timeout));
    assert_eq!((reason(&limiter).await, server.calls().len()), (None, 1));
    assert_eq!(dials.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_dial_together_are_one_failure() {
    let server = FakeServer::new();
    let (dial, _) = slow(&server, ms(150));
    let limiter = Limiter::with_options(dial, Options::default().breaker_failures(2)).unwrap();
    let calling: Vec<_> = (0..9)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { reason(&limiter).await })
        })
        .collect();
    for call in calling {
        assert_eq!(call.await.unwrap(), Some(Reason::Timeout));
    }
    assert_eq!(reason(&limiter).await, None);
}

#[tokio::test(start_paused = true)]
async fn dial_without_an_end_fails_after_one_second_and_the_pause_counts_from_its_start() {
    let server = FakeServer::new();
    let (dial, dials) = slow(&server, ms(1_000_000));
    let options = Options::default().breaker_failures(2).breaker_pause(ms(2000));
    let limiter = Limiter::with_options(dial, options).unwrap();
    let began = Instant::now();
    sleep_until(began + ms(1)).await;
    assert_eq!(reason(&limiter).await, Some(Reason::Timeout));
    sleep_until(began + ms(950)).await;
    assert_eq!(reason(&limiter).await, Some(Reason::Connection));
    // The dial began after 1 ms and failed 1 s later. Both calls are one failure.
    assert_eq!((began.elapsed(), dials.load(Ordering::Relaxed)), (ms(1001), 1));
    for (at, reasons, dialled) in
        [(1002, Reason::Connection, 1), (1600, Reason::Connection, 1), (2402, Reason::Timeout, 2)]
    {
        sleep_until(began + ms(at)).await;
        assert_eq!(reason(&limiter).await, Some(reasons));
        assert_eq!(dials.load(Ordering::Relaxed), dialled, "at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_whose_dial_leaves_it_less_time_than_it_took_is_not_sent() {
    for (took, first, sent) in [(50, None, 1), (51, Some(Reason::Timeout), 0)] {
        let server = FakeServer::new();
        let (dial, dials) = slow(&server, ms(took));
        let limiter = Limiter::with_options(dial, Options::default().breaker_failures(2)).unwrap();
        assert_eq!(reason(&limiter).await, first, "after {took} ms");
        assert_eq!(server.calls().len(), sent);
        // The connection serves the next call.
        assert_eq!(reason(&limiter).await, None);
        assert_eq!(dials.load(Ordering::Relaxed), 1);
    }
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
    let options = Options::default().breaker_failures(1);
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
    // The first call was sent 100 ms ago. Its end is no failure.
    sleep_until(began + ms(101)).await;
    assert_eq!(reason(&limiter).await, None);
    assert_eq!(dials.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn connection_on_which_another_call_is_answered_stays_when_a_caller_gives_up() {
    let (first, others) = (FakeServer::new(), FakeServer::new());
    first.hang();
    let (limiter, dials) = first_to(&first, &others);
    assert!(timeout(ms(50), reason(&limiter)).await.is_err());
    first.recover();
    assert_eq!(reason(&limiter).await, None);
    sleep(ms(200)).await;
    assert_eq!(reason(&limiter).await, None);
    assert_eq!(dials.load(Ordering::Relaxed), 1);
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
    assert_eq!(idle.block_on(reason(&limiter)), Some(Reason::Timeout));
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
