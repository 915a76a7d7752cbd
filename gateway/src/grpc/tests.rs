use prometheus_client::registry::Registry;
use redis_throttle_client::{Limiter, redis};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::*;
use crate::decider::Tags;

/// The preface of a client, and its frame of settings without a setting.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: u8 = 6;
const GOAWAY: u8 = 7;

fn service() -> Service {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), "domain: api\nlimits: []\n").unwrap();
    let live = Live::load(file.path().to_owned()).unwrap();
    let limiter = Limiter::new(redis::Client::open("redis://a").unwrap());
    let decider = Decider::new(limiter, Duration::from_secs(1), Tags::None, false);
    Service::new(live, decider, Arc::new(Metrics::new(Registry::default())))
}

/// Acknowledges pings, and returns the time until the server says that the connection ends.
async fn age(mut peer: DuplexStream) -> Duration {
    let began = Instant::now();
    peer.write_all(PREFACE).await.unwrap();
    loop {
        let mut head = [0; 9];
        peer.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[2])];
        peer.read_exact(&mut payload).await.unwrap();
        match (head[3], head[4]) {
            (PING, 0) => {
                head[4] = 1;
                peer.write_all(&[&head[..], &payload].concat()).await.unwrap();
            }
            (GOAWAY, _) => return began.elapsed(),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_open_together_end_apart() {
    let (_end, ended) = watch::channel(false);
    let mut peers = JoinSet::new();
    for _ in 0..50 {
        let (peer, stream) = duplex(1_024);
        tokio::spawn(connection(stream, Routes::default(), service(), ended.clone()));
        peers.spawn(age(peer));
    }
    let ages = peers.join_all().await;
    let (least, most) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
    // Timers have whole milliseconds.
    let expected = Duration::from_millis(269_999)..=Duration::from_millis(330_001);
    assert!(expected.contains(least) && expected.contains(most), "{least:?} to {most:?}");
    assert!(*most - *least > Duration::from_secs(20), "{least:?} to {most:?}");
}

#[tokio::test(start_paused = true)]
async fn message_has_five_seconds_and_its_decision_the_time_of_the_proxy() {
    let seconds = |count| Some(Duration::from_secs(count));
    // The time of the proxy, whether the message has arrived, and the time of the call.
    let table = [
        (None, false, seconds(5)),
        (seconds(60), false, seconds(5)),
        (seconds(1), false, seconds(1)),
        (seconds(1), true, seconds(1)),
        (seconds(60), true, seconds(60)),
        (None, true, None),
    ];
    for (patience, has_arrived, expected) in table {
        let arrived = Arrived::default();
        arrived.0.store(has_arrived, Ordering::Relaxed);
        let began = Instant::now();
        let ended = timeout(Duration::from_secs(3_600), arrived.late(patience)).await;
        let took = ended.is_ok().then(|| Duration::from_secs(began.elapsed().as_secs()));
        assert_eq!(took, expected, "{patience:?}, {has_arrived}");
    }
}
