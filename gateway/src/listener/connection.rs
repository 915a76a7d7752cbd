//! A connection, whose end and whose silence are bounded.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;
use tokio::time::{Sleep, sleep};

use super::Place;

/// The bytes that count as one step of a connection's task, which has 128 before others run. A read
/// of any length is one step to the runtime, so a peer that sends without a pause would keep the
/// replies of the server from being read, as if it were silent.
const STEP_BYTES: usize = 512;
/// The time for a peer to take some bytes of its responses: one that reads nothing must not keep
/// its place.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// The time for the rest of a request after the last response, and the most bytes of it.
const REST: Duration = Duration::from_secs(1);
const REST_BYTES_MAX: usize = 1024 * 1024;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for S {}

/// A connection, which is one of the listener's until it is dropped.
pub struct Connection {
    stream: Box<dyn Io>,
    peer: Option<IpAddr>,
    /// The time for the first bytes of the peer, and their number.
    silence: Option<(Pin<Box<Sleep>>, usize)>,
    /// The time for the peer to take bytes, while it takes none.
    untaken: Option<Pin<Box<Sleep>>>,
    end: Option<End>,
    place: Arc<Place>,
}

/// The end of a connection: the peer learns that no more bytes come, then what it still sends is
/// read. If bytes were left unread, the system would reset the connection, and the proxy would lose
/// the response and take the gateway for unreachable.
struct End {
    time: Pin<Box<Sleep>>,
    is_shut: bool,
    /// The bytes that are still read.
    left: usize,
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(stream: Box<dyn Io>, peer: Option<IpAddr>, place: Place) -> Self {
        let place = Arc::new(place);
        Self { stream, peer, silence: None, untaken: None, end: None, place }
    }

    /// Limits the time until the peer has sent some bytes. Reading then fails, so that silent peers
    /// do not keep the places of others.
    #[must_use]
    pub fn silent_at_most(self, time: Duration, bytes: usize) -> Self {
        Self { silence: Some((Box::pin(sleep(time)), bytes)), ..self }
    }

    /// Returns the place. The connection counts as waiting for its peer until [`Place::arrived`].
    pub(crate) fn place(&self) -> Arc<Place> {
        self.place.clone()
    }

    /// Returns the address of the peer; a peer on a unix socket has none.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Returns the result of a write, or an error if the peer takes no bytes for too long.
    fn taken<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.untaken = None;
            return written;
        }
        let time = self.untaken.get_or_insert_with(|| Box::pin(sleep(TAKEN_WITHIN)));
        time.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends the connection, apart from the time for it.
    fn poll_end(&mut self, end: &mut End, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !end.is_shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            end.is_shut = true;
        }
        let mut bytes = [0; 4 * 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut *self).poll_read(context, &mut buffer));
            let length = buffer.filled().len();
            if read.is_err() || length == 0 || length >= end.left {
                return Poll::Ready(Ok(()));
            }
            end.left -= length;
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let length = buffer.filled().len() - before;
        for _ in 0..length / STEP_BYTES {
            if let Poll::Ready(step) = poll_proceed(context) {
                step.made_progress();
            }
        }
        let Some((time, expected)) = &mut self.silence else { return read };
        *expected = expected.saturating_sub(length);
        if *expected == 0 {
            self.silence = None;
            self.place.arrived();
        } else if read.is_pending() && time.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.taken(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.taken(flushed, context)
    }

    /// Shuts the connection down, and discards what the peer still sends until it ends, too.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut end = self.end.take().unwrap_or_else(|| {
            self.place.wait();
            End { time: Box::pin(sleep(REST)), is_shut: false, left: REST_BYTES_MAX }
        });
        let mut ended = self.poll_end(&mut end, context);
        if ended.is_pending() {
            ended = end.time.as_mut().poll(context).map(Ok);
        }
        if ended.is_pending() {
            self.end = Some(end);
        }
        ended
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.taken(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
