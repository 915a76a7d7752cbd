//! A proxy that drops the server's replies to the module's commands: the server counts the calls,
//! and the caller gets no reply.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

/// The way in which replies are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The connection is closed instead of each reply.
    Cut,
    /// The connection is closed instead of the first `n` replies; later replies arrive.
    CutFirst(usize),
    /// No reply arrives.
    Silence,
    /// No reply arrives after the first `n` calls.
    SilenceAfter(usize),
}

impl Loss {
    /// Returns true if the reply to the call that follows `before` other calls is lost.
    fn takes(self, before: usize) -> bool {
        match self {
            Self::CutFirst(calls) => before < calls,
            Self::SilenceAfter(calls) => before >= calls,
            Self::Cut | Self::Silence => true,
        }
    }
}

/// The state that all connections of one proxy share.
#[derive(Default)]
struct Traffic {
    /// The number of the module's calls that were sent to the server.
    calls: AtomicUsize,
    /// The number of connections that callers have open.
    open: AtomicUsize,
    /// The proxy's connections to the server. They are kept open, because a server may not read the
    /// bytes that were sent before a connection is closed.
    kept: Mutex<Vec<TcpStream>>,
}

/// Listens on its own port and forwards everything except the replies to commands `RL.*`.
pub struct LossyWay {
    pub port: u16,
    traffic: Arc<Traffic>,
}

impl LossyWay {
    pub fn to(server_port: u16, loss: Loss) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let traffic = Arc::new(Traffic::default());
        let shared = Arc::clone(&traffic);
        thread::spawn(move || {
            for caller in listener.incoming() {
                let caller = caller.expect("a caller");
                let server = TcpStream::connect(("127.0.0.1", server_port)).expect("the server");
                shared.open.fetch_add(1, SeqCst);
                pass(caller, server, loss, &shared);
            }
        });
        Self { port, traffic }
    }

    /// Returns the number of the module's calls that were sent to the server; `None` until all
    /// callers have closed their connections.
    pub fn calls_when_all_have_left(&self) -> Option<usize> {
        (self.traffic.open.load(SeqCst) == 0).then(|| self.traffic.calls.load(SeqCst))
    }
}

/// Forwards one connection, in two threads.
fn pass(caller: TcpStream, server: TcpStream, loss: Loss, traffic: &Arc<Traffic>) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    traffic.kept.lock().expect("no thread has panicked").push(clone(&server));
    // Locked while a call is sent, so that its reply cannot be forwarded before the call is
    // counted.
    let lost = Arc::new(Mutex::new(false));
    let (mut from_caller, mut to_server) = (clone(&caller), clone(&server));
    let (known, shared) = (Arc::clone(&lost), Arc::clone(traffic));
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length @ 1..) = from_caller.read(&mut buffer) {
            let mut lost = known.lock().expect("no thread has panicked");
            let calls = buffer[..length].windows(3).filter(|bytes| bytes == b"RL.").count();
            let before = shared.calls.fetch_add(calls, SeqCst);
            *lost |= calls > 0 && loss.takes(before);
            if to_server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        shared.open.fetch_sub(1, SeqCst);
    });
    let (mut from_server, mut to_caller) = (server, caller);
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            let lost = lost.lock().expect("no thread has panicked");
            match (*lost, loss) {
                (false, _) => drop(to_caller.write_all(&buffer[..length])),
                (true, Loss::Silence | Loss::SilenceAfter(_)) => {}
                (true, _) => drop(to_caller.shutdown(Shutdown::Both)),
            }
        }
    });
}
