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

use crate::listener::Place;

/// The time from the first byte of a head to its end, and from the start of a connection to the end
/// of its first head.
const HEAD: Duration = Duration::from_secs(10);

/// The requests of a connection, which the server counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// The heads that were read.
    read: AtomicUsize,
    responded: AtomicUsize,
}

impl Counts {
    /// Counts a head that was read.
    pub fn read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response.
    pub fn responded(&self) {
        self.responded.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of heads, and true if all have their responses.
    fn load(&self) -> (usize, bool) {
        let read = self.read.load(Ordering::Relaxed);
        (read, read == self.responded.load(Ordering::Relaxed))
    }
}

/// A connection whose reads fail if a head takes too long.
#[derive(Debug)]
pub struct Heads<S> {
    stream: S,
    /// The place of the connection, which it may lose while it waits for a head.
    place: Option<Arc<Place>>,
    counts: Arc<Counts>,
    /// The number of heads when the time began.
    before: usize,
    /// The last bytes that were read.
    last: [u8; 3],
    /// Set while the peer owes the end of a head.
    time: Option<Pin<Box<Sleep>>>,
}

impl<S> Heads<S> {
    /// Starts the time for the first head.
    pub fn new(stream: S, place: Option<Arc<Place>>) -> (Self, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        let (time, last) = (Some(Box::pin(sleep(HEAD))), [0; 3]);
        (Self { stream, place, counts: counts.clone(), before: 0, last, time }, counts)
    }

    /// Starts or ends the time before a read. The bytes of a body do not count, because they come
    /// before the response; bytes that arrive after them are part of the next head.
    fn follow(&mut self) {
        let (read, all_responded) = self.counts.load();
        if !all_responded {
            self.time = None;
        } else if read != self.before {
            self.before = read;
            let is_between = matches!(self.last, [.., b'\n', b'\n'] | [b'\n', b'\r', b'\n']);
            self.time = (!is_between).then(|| Box::pin(sleep(HEAD)));
        }
    }

    fn keep_last(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(3);
        self.last.rotate_left(kept);
        self.last[3 - kept..].copy_from_slice(&bytes[bytes.len() - kept..]);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.follow();
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() {
            self.keep_last(bytes);
            if self.counts.load() == (self.before, true) {
                self.time.get_or_insert_with(|| Box::pin(sleep(HEAD)));
            }
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
