//! The warnings of decisions without the server.

use std::cell::RefCell;

use log::{LevelFilter, Log, Metadata, Record};
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{ClientAddress, Options};
use tokio::time::advance;

use crate::{api, ms, times};

thread_local! {
    /// The lines of this test, which runs on one thread.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Lines;

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LINES.with_borrow_mut(|lines| lines.push(format!("{} {}", record.level(), record.args())));
    }

    fn flush(&self) {}
}

/// Sets the logger of this file's tests, the only one of this program.
fn listen() {
    let _ = log::set_logger(&Lines);
    log::set_max_level(LevelFilter::Warn);
}

fn logged() -> Vec<String> {
    LINES.take()
}

#[tokio::test(start_paused = true)]
async fn decisions_without_the_server_are_logged_once_per_second_and_reason() {
    let line = |count: u64, reason: &str| {
        format!("WARN redis-throttle: {count} calls decided without the server: {reason}")
    };
    listen();
    let server = FakeServer::new();
    let options = Options::default().breaker_failures(4);
    let limiter = server.limiter_with(options.clone()).unwrap();
    server.reply_with("OOM alice");
    times(&limiter, &api(), 3).await;
    assert_eq!(logged(), [line(1, "server")]);
    advance(ms(1000)).await;
    // The fourth failure opens the breaker.
    times(&limiter, &api(), 3).await;
    assert_eq!(logged(), [line(3, "server"), line(1, "circuit")]);
    limiter.close().await;
    assert_eq!(logged(), [line(1, "circuit")]);

    let quiet = server.limiter_with(options.log_errors(false)).unwrap();
    times(&quiet, &api(), 3).await;
    quiet.close().await;
    assert!(logged().is_empty());
}

#[test]
fn peers_without_an_address_share_a_subject_which_is_logged_once() {
    listen();
    let (named, unnamed) = (["192.0.2.1"], [""]);
    let found = |addresses: &ClientAddress, forwarded: &[&'static str]| {
        addresses.find_or_share(None, forwarded.iter().copied())
    };
    let untrusted = ClientAddress::new(["192.0.2.0/24"]).unwrap();
    for forwarded in [&named[..], &unnamed[..], &[]] {
        assert_eq!(found(&untrusted, forwarded).as_deref(), Some("peer:"));
    }
    let lines = logged();
    assert!(lines.len() == 1 && lines[0].contains("share one limit"), "{lines:?}");

    let trusted = ClientAddress::new(["unix"]).unwrap();
    assert_eq!(found(&trusted, &named).as_deref(), Some("192.0.2.1"));
    assert_eq!(found(&trusted, &["rubbish"]), None);
    assert!(logged().is_empty());
    assert_eq!(found(&trusted, &unnamed).as_deref(), Some("peer:"));
    assert_eq!(logged().len(), 1);
}
