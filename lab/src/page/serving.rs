//! Accepts connections and serves the site on each of them.
//!
//! The number of connections is limited, and each has deadlines: for the head of a request, for its
//! body, and for the whole connection. So no client keeps others out for long.

use super::access::Access;
use super::request::Site;
use crate::listening;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as Listener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The deadlines and limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time for a client to send the head of a request, and to begin the next one.
    pub head: Duration,
    /// The time after which a connection accepts no further request.
    pub connection: Duration,
    /// The time that it then has for the current response.
    pub last_response: Duration,
    /// The number of connections at a time. Others wait until one ends.
    pub connections_max: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            connection: Duration::from_secs(300),
            last_response: Duration::from_secs(30),
            connections_max: 64,
        }
    }
}

/// The longest head of a request.
const HEAD_MAX_BYTES: usize = 16 * 1024;

/// The pause after an error of `accept`, for example when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that listens and does not respond yet.
pub struct Server {
    listener: Listener,
    address: SocketAddr,
    site: Site,
    patience: Patience,
}

impl Server {
    /// Listens on an address, given as `host:port`.
    ///
    /// # Errors
    ///
    /// Returns a line that says what is wrong and what to do.
    pub fn bind(listen: &str, patience: Patience) -> Result<Self, String> {
        let (listener, address) = listening::bind(listen, "127.0.0.1:7781")?;
        let site = Site::new(Access::new(listen, address));
        Ok(Self { listener, address, site, patience })
    }

    /// Returns the address. A port 0 of `--listen` is replaced by the port that the system chose.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    ///
    /// Returns the error of starting the runtime.
    pub fn run(self) -> io::Result<Infallible> {
        Runtime::new()?.block_on(async {
            let listener = TcpListener::from_std(self.listener)?;
            let site = Arc::new(self.site);
            let places = Arc::new(Semaphore::new(self.patience.connections_max));
            loop {
                let place = Arc::clone(&places).acquire_owned().await;
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (site, patience) = (Arc::clone(&site), self.patience);
                        tokio::spawn(async move {
                            serve(stream, &site, patience).await;
                            drop(place);
                        });
                    }
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                }
            }
        })
    }
}

/// Serves one connection until it ends. An error ends it too, and concerns no other connection.
async fn serve(stream: TcpStream, site: &Site, patience: Patience) {
    // Without this, the end of a response could wait for the client's acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(async |request| Ok::<_, Infallible>(site.respond(request).await));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    if timeout(patience.connection, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(patience.last_response, connection).await;
    }
}
