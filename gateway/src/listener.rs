//! Listens on an address or a unix socket, with or without TLS.
//!
//! ```text
//! Address -> Listener -> Connections -> Connection, whose TLS handshake is done
//! ```

mod address;
mod connection;
mod places;

use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::log::{Level, event};
use crate::tls::Tls;
pub use address::{Address, InvalidAddress};
pub use connection::Connection;
use connection::Io;
pub(crate) use places::Place;
use places::Places;

/// The most connections of a listener at a time. The next one takes the place of the connection
/// that has waited longest for its peer, or waits itself if none does.
const CONNECTIONS_MAX: usize = 4_096;
/// The time for handshakes to end before the other connections end.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);
/// The time for the response to the last call to be written.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);
/// The time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The rights of a socket's file.
const SOCKET_MODE: u32 = 0o666;
/// The connections that the system keeps until they are accepted, if its own bound is not lower.
const BACKLOG: u32 = 4_096;
/// The pause after a connection could not be accepted, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// With TLS if it is given.
    Tcp(TcpListener, Option<Tls>),
    /// Without TLS. The file is removed before the socket is closed.
    Unix(SocketFile, UnixListener),
}

/// The file of a socket, which is removed at the end, unless another program has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    /// Lets all users connect whom the rights of the folder let in: a proxy runs as another user.
    fn of(path: &Path) -> io::Result<Self> {
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
        Ok(Self { path: path.to_owned(), id: file_id(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_id(&self.path).is_ok_and(|id| id == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the device and the number by which the system knows a file.
fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Listens with room for a burst of connections. A proxy whose connection is not begun in time
/// passes the request, and the library's room is 128.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Listener {
    /// Listens. `tls` is for IP addresses only.
    ///
    /// # Errors
    /// The reason, for example that another program listens there.
    pub async fn bind(address: &Address, tls: Option<Tls>) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Ok(Self::Tcp(listen(*address)?, tls)),
            Address::Unix(path) => {
                remove_stale(path).await;
                let listener = UnixListener::bind(path)?;
                Ok(Self::Unix(SocketFile::of(path)?, listener))
            }
        }
    }

    /// Returns the address, with the port that the system has chosen.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Self::Tcp(listener, _) => Address::Tcp(listener.local_addr()?),
            Self::Unix(file, _) => Address::Unix(file.path.clone()),
        })
    }

    /// Accepts a connection, without a handshake.
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, peer) = listener.accept().await?;
                // Responses are small, and the proxy waits for each.
                let _ = stream.set_nodelay(true);
                Ok(Accepted::Tcp(stream, peer.ip()))
            }
            Self::Unix(_, listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }

    /// Accepts connections until no service takes them, or until it is to close.
    async fn run(self, most: usize, ready: mpsc::Sender<Connection>, close: Arc<Notify>) {
        let places = Places::new(most);
        // Kept while it waits for a place.
        let mut arrived = None;
        let mut next = async || {
            if arrived.is_none() {
                arrived = Some(self.accept().await?);
            }
            let place = places.take().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((arrived.take(), place))
        };
        loop {
            let accepted = tokio::select! {
                () = ready.closed() => return,
                () = close.notified() => break,
                accepted = next() => accepted,
            };
            match accepted {
                Ok((Some(accepted), place)) => self.pass(accepted, place, &ready).await,
                Ok((None, _)) => {}
                Err(error) => {
                    let event = event(Level::Error, "accept_failed").with("message", error);
                    event.write_bounded();
                    sleep(PAUSE).await;
                }
            }
        }
        // The system has accepted these connections: their requests may be on the way.
        while let Ok(Ok((Some(accepted), place))) = timeout(Duration::ZERO, next()).await {
            self.pass(accepted, place, &ready).await;
        }
    }

    /// Passes a connection to the service; one with TLS after its handshake, for which the next
    /// connections do not wait.
    async fn pass(&self, accepted: Accepted, place: Place, ready: &mpsc::Sender<Connection>) {
        let (stream, peer): (Box<dyn Io>, _) = match (self, accepted) {
            (Self::Tcp(_, Some(tls)), Accepted::Tcp(stream, peer)) => {
                tokio::spawn(greeted(tls.clone(), stream, peer, place, ready.clone()));
                return;
            }
            (_, Accepted::Tcp(stream, peer)) => (Box::new(stream), Some(peer)),
            (_, Accepted::Unix(stream)) => (Box::new(stream), None),
        };
        // Without a service, the connection is closed.
        let _ = ready.send(Connection::new(stream, peer, place)).await;
    }
}

enum Accepted {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
}

/// Removes the file of a socket on which no program listens.
async fn remove_stale(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).await.is_err_and(refuses) {
        let _ = fs::remove_file(path);
    }
}

/// Performs the TLS handshake, and passes the connection to the service.
async fn greeted(
    tls: Tls,
    stream: TcpStream,
    peer: IpAddr,
    place: Place,
    ready: mpsc::Sender<Connection>,
) {
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    let greeted = tokio::select! {
        greeted = timeout(HANDSHAKE, tls.accept(stream)) => greeted.unwrap_or_else(late),
        () = place.lost() => return,
    };
    match greeted {
        Ok(stream) => {
            let stream: Box<dyn Io> = Box::new(stream);
            let _ = ready.send(Connection::new(stream, Some(peer), place)).await;
        }
        // A check of a load balancer: it connects and leaves.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => {
            let event = event(Level::Warning, "handshake_failed").with("peer", peer);
            event.with("message", error).write_bounded();
        }
    }
}

/// The connections of a listener, which is closed when this is dropped.
#[derive(Debug)]
pub struct Connections {
    ready: mpsc::Receiver<Connection>,
    close: Arc<Notify>,
}

impl Connections {
    /// Starts to accept connections, with a bound of their number.
    pub(crate) fn at_most(most: usize, listener: Listener) -> Self {
        let (ready, incoming) = mpsc::channel(1);
        let close = Arc::new(Notify::new());
        tokio::spawn(listener.run(most, ready, close.clone()));
        Self { ready: incoming, close }
    }

    /// Passes each connection to `serve` until `stop` ends, then closes the listener. Each gets a
    /// value that becomes true when it has to move on. Returns when all have ended.
    pub(crate) async fn serve_each<F: Future<Output = ()> + Send + 'static>(
        mut self,
        stop: impl Future<Output = ()>,
        serve: impl Fn(Connection, watch::Receiver<bool>) -> F,
    ) {
        let mut open = JoinSet::new();
        let (end, ended) = watch::channel(false);
        let spawn = |open: &mut JoinSet<()>, connection: Connection| {
            let place = connection.place();
            let served = serve(connection, ended.clone());
            open.spawn(async move {
                tokio::select! {
                    () = served => {}
                    () = place.lost() => {}
                }
            });
        };
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = open.join_next() => {}
                Some(connection) = self.ready.recv() => {
                    spawn(&mut open, connection);
                }
            }
        }
        // A proxy whose connection ends connects again at once, and must be refused by then. The
        // connections that the listener has accepted are still served.
        self.close.notify_one();
        let until = Instant::now() + CLOSED_WITHIN;
        while let Ok(Some(connection)) = timeout_at(until, self.ready.recv()).await {
            spawn(&mut open, connection);
        }
        drop(self);
        end.send_replace(true);
        while open.join_next().await.is_some() {}
    }
}

/// Starts to accept connections. Needs a runtime.
impl From<Listener> for Connections {
    fn from(listener: Listener) -> Self {
        Self::at_most(CONNECTIONS_MAX, listener)
    }
}

/// Accepts connections without TLS.
impl From<TcpListener> for Connections {
    fn from(listener: TcpListener) -> Self {
        Listener::Tcp(listener, None).into()
    }
}

/// Serves a connection until it ends. Once `old` ends or `ended` is true, it takes no further
/// requests, and ends when those that it has have responses. After `ended`, half a request is not
/// waited for. Each request that is read holds a receiver of `calls`.
pub(crate) async fn serve_until(
    connection: impl GracefulConnection,
    old: impl Future<Output = ()>,
    ended: watch::Receiver<bool>,
    calls: &watch::Sender<()>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = old => {}
        () = is_true(ended.clone()) => {}
    }
    connection.as_mut().graceful_shutdown();
    let cut = async {
        is_true(ended).await;
        // Most connections end by themselves.
        sleep(CLOSED_WITHIN).await;
        calls.closed().await;
        sleep(WRITTEN_WITHIN).await;
    };
    tokio::select! {
        _ = connection => {}
        () = cut => {}
    }
}

/// Waits until a value is true.
pub(crate) async fn is_true(mut watched: watch::Receiver<bool>) {
    let _ = watched.wait_for(|is_true| *is_true).await;
}

#[cfg(test)]
mod tests;
