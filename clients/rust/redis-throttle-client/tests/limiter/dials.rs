//! Dials that are slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Dial, Limiter, Options, Reason};
use tokio::time::{Instant, sleep, sleep_until};

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
