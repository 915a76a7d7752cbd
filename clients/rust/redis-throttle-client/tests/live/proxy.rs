//! A proxy whose connections can fall silent, without a reset, and that can lead elsewhere.

// Two test programs include this file, and one uses a part of it.
#![allow(dead_code)]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (silenced, heard) = watch::channel(());
        let (to, accepted) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicUsize::new(0)));
        let (leads, accepts) = (to.clone(), accepted.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepts.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(lead(client, leads.load(Ordering::Relaxed), heard.clone()));
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

async fn lead(mut client: TcpStream, to: u16, mut silenced: watch::Receiver<()>) {
    silenced.mark_unchanged();
    if to == 0 {
        return pending().await;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        // The sender is gone when the test has ended.
        changed = silenced.changed() => if changed.is_err() { return },
    }
    pending().await
}
