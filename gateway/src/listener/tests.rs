use std::io::ErrorKind;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::{advance, timeout};

use super::*;

/// Returns a connection whose peer may send or leave unread 16 bytes, and its peer.
async fn connected() -> (DuplexStream, Connection) {
    let (peer, stream) = duplex(16);
    let place = Places::new(1).take().await.unwrap();
    (peer, Connection::new(Box::new(stream), None, place))
}

#[tokio::test(start_paused = true)]
async fn write_fails_if_the_peer_takes_nothing_for_ten_seconds() {
    let (mut peer, mut connection) = connected().await;
    let writing = tokio::spawn(async move { connection.write_all(&[7; 64]).await });
    for _ in 0..3 {
        tokio::task::yield_now().await;
        advance(Duration::from_millis(9_900)).await;
        peer.read_exact(&mut [0; 8]).await.unwrap();
    }
    let began = Instant::now();
    assert_eq!(writing.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), 10);
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn rest_of_a_request_is_read_for_a_second() {
    let (mut peer, mut connection) = connected().await;
    let ending = tokio::spawn(async move { connection.shutdown().await.map(|()| connection) });
    assert_eq!(peer.read(&mut [0]).await.unwrap(), 0);
    // More than the stream holds.
    timeout(Duration::from_millis(500), peer.write_all(&[7; 1_000])).await.unwrap().unwrap();
    let connection = timeout(Duration::from_millis(1_010), ending).await.unwrap().unwrap();
    assert!(connection.is_ok());
    let (mut peer, mut connection) = connected().await;
    let ending = tokio::spawn(async move { connection.shutdown().await });
    peer.shutdown().await.unwrap();
    timeout(Duration::from_millis(10), ending).await.unwrap().unwrap().unwrap();
}
