//! Proxies: one whose connections can fall silent, without a reset, whose replies can be late, and
//! that can lead elsewhere; and one that drops replies.

// Several test programs include this file, and each uses a part of it.
#![allow(dead_code)]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// A proxy on a port of 127.0.0.1.
pub struct Proxy {
    pub port: u16,
    to: Arc<AtomicU16>,
    accepted: Arc<AtomicUsize>,
    silenced: watch::Sender<()>,
}

impl Proxy {
    /// Starts a proxy that leads nowhere yet.
    pub async fn start() -> Self {
        Self::with_delay(Duration::ZERO).await
    }

    /// Starts a proxy that holds each reply for a time.
    pub async fn with_delay(delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (silenced, heard) = watch::channel(());
        let (to, accepted) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicUsize::new(0)));
        let (leads, accepts) = (to.clone(), accepted.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepts.fetch_add(1, Ordering::Relaxed);
                let to = leads.load(Ordering::Relaxed);
                tokio::spawn(lead(client, to, heard.clone(), delay));
            }
        });
        Self { port, to, accepted, silenced }
    }

    /// Leads connections from now on to this port. Port 0 accepts them and forwards nothing.
    pub fn lead_to(&self, port: u16) {
        self.to.store(port, Ordering::Relaxed);
    }

    /// Forwards nothing more on the connections of this instant. They stay open.
    pub fn silence(&self) {
        self.silenced.send_replace(());
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

async fn lead(mut client: TcpStream, to: u16, mut silenced: watch::Receiver<()>, delay: Duration) {
    silenced.mark_unchanged();
    if to == 0 {
        return pending().await;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    tokio::select! {
        () = forward(&mut client, &mut server, delay) => return,
        // The sender is gone when the test has ended.
        changed = silenced.changed() => if changed.is_err() { return },
    }
    pending().await
}

/// Forwards both ways, and holds what the server sends.
async fn forward(client: &mut TcpStream, server: &mut TcpStream, delay: Duration) {
    if delay.is_zero() {
        // A connection that is lost ends the other one too.
        let _ = copy_bidirectional(client, server).await;
        return;
    }
    let (mut requests, mut to_client) = client.split();
    let (mut replies, mut to_server) = server.split();
    let (hold, mut held) = mpsc::unbounded_channel();
    let read = async move {
        loop {
            let mut bytes = vec![0; 1 << 16];
            let Ok(length @ 1..) = replies.read(&mut bytes).await else { return };
            bytes.truncate(length);
            if hold.send((Instant::now() + delay, bytes)).is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = held.recv().await {
            sleep_until(due).await;
            if to_client.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy(&mut requests, &mut to_server) => {}
        ((), ()) = async { tokio::join!(read, write) } => {}
    }
}

/// Starts a proxy to a port. It runs requests for which the function of their connection returns
/// true, but drops the reply and ends the connection. Returns its URL.
pub async fn losing<F: FnMut(&str) -> bool + Send + 'static>(
    to: u16,
    mut drops: impl FnMut() -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            tokio::spawn(lose(client, server, drops()));
        }
    });
    format!("redis://127.0.0.1:{port}")
}

/// Forwards both ways, until it drops a reply.
async fn lose(mut client: TcpStream, mut server: TcpStream, mut drops: impl FnMut(&str) -> bool) {
    let (mut request, mut reply, mut drops_next) = (vec![0; 1 << 16], vec![0; 1 << 16], false);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                drops_next |= drops(&String::from_utf8_lossy(&request[..length]));
                if server.write_all(&request[..length]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut reply) => {
                let Ok(length @ 1..) = read else { return };
                if drops_next || client.write_all(&reply[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
