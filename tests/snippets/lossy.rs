//! A way to a server on which the replies of our commands are lost: the server has counted, and
//! the caller will never know.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the caller sees instead of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The connection ends.
    Cut,
    /// The connection ends, for the first so many calls; then replies come through.
    CutFirst(usize),
    /// Nothing at all.
    Silence,
    /// Nothing at all, from so many calls on.
    SilenceAfter(usize),
}

impl Loss {
    /// Whether the reply to a call is lost, when so many calls came before it.
    fn takes(self, before: usize) -> bool {
        match self {
            Self::CutFirst(calls) => before < calls,
            Self::SilenceAfter(calls) => before >= calls,
            Self::Cut | Self::Silence => true,
        }
    }
}

/// What all connections of one way share.
#[derive(Default)]
struct Traffic {
    /// Calls of ours that went to the server.
    calls: AtomicUsize,
    /// Connections that the caller still holds.
    open: AtomicUsize,
    /// A server whose connection ends may not read what was sent before: none ends too early.
    kept: Mutex<Vec<TcpStream>>,
}

/// Listens on a port of its own and passes everything on, but for replies to commands `RL.*`.
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

    /// How many calls of ours the server got, once no caller holds a connection any more.
    pub fn calls_when_all_have_left(&self) -> Option<usize> {
        (self.traffic.open.load(SeqCst) == 0).then(|| self.traffic.calls.load(SeqCst))
    }
}

/// Serves one connection, in two threads.
fn pass(caller: TcpStream, server: TcpStream, loss: Loss, traffic: &Arc<Traffic>) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    traffic.kept.lock().expect("no thread has panicked").push(clone(&server));
    // Held while a call is sent, so that no reply to it can pass before it is known as one.
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
