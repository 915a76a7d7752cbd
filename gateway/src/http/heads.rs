//! The time for the head of a request: a peer that sends half a head must not keep its place.
//!
//! The server's own time-out also counts while a connection is idle, so it must be longer than the
//! time for which proxies keep idle connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::listening::Place;

/// The time from the first byte of a head to its end, and from the start of a connection to the end
/// of its first head.
const HEAD: Duration = Duration::from_secs(10);

/// The number of heads that a connection has read.
pub type Count = Arc<AtomicUsize>;

/// A connection whose reads fail if a head takes too long.
#[derive(Debug)]
pub struct Heads<S> {
    stream: S,
    /// The place of the connection, which it may lose while it waits for a head.
    place: Option<Arc<Place>>,
    read: Count,
    /// The number of heads when the time began.
    before: usize,
    /// Set while a head is being read.
    time: Option<Pin<Box<Sleep>>>,
}

impl<S> Heads<S> {
    /// Starts the time for the first head. The server increments the count after each head.
    pub fn new(stream: S, place: Option<Arc<Place>>) -> (Self, Count) {
        let read = Count::default();
        let time = Some(Box::pin(sleep(HEAD)));
        (Self { stream, place, read: read.clone(), before: 0, time }, read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.read.load(Ordering::Relaxed);
        if read != self.before {
            self.before = read;
            self.time = None;
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.time.get_or_insert_with(|| Box::pin(sleep(HEAD)));
        } else if result.is_pending()
            && let Some(time) = &mut self.time
        {
            if time.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if let Some(place) = &self.place {
                place.wait();
            }
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heads<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
