//! Accepts connections, and replies to the commands of each in their order.
//!
//! A connection holds at most one command that is incomplete, and reads no further while its client
//! leaves replies unread.

use super::database::Database;
use super::resp::{self, Write as _};
use super::session::{Next, Session};
use crate::listening;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as Listener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The most connections at a time.
const CONNECTIONS_MAX: usize = 10_000;
/// The bytes of replies that are sent together.
const REPLIES_BYTES: usize = 16 * 1024;
/// The bytes that are read at a time.
const READ_BYTES: usize = 16 * 1024;
/// The time for a client to read replies.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// The bytes that are read after the last reply, and the time for them.
const DISCARDED_BYTES: u64 = 1024 * 1024;
const DISCARD_PATIENCE: Duration = Duration::from_secs(1);
/// The pause after an error of `accept`, for example when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that listens and does not reply yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: SocketAddr,
}

impl Server {
    /// Listens on an address, given as `host:port`.
    ///
    /// # Errors
    ///
    /// Returns a line that says what is wrong and what to do.
    pub fn bind(listen: &str) -> Result<Self, String> {
        let (listener, address) = listening::bind(listen, "127.0.0.1:7380")?;
        Ok(Self { listener, address })
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
            let database = Arc::new(Database::default());
            let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            let mut id = 0;
            loop {
                let Ok((mut stream, _)) = listener.accept().await else {
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                    let _ = stream.shutdown().await;
                    continue;
                };
                id += 1;
                let session = Session::new(Arc::clone(&database), id);
                tokio::spawn(async move {
                    // An error concerns no other connection.
                    let _ = serve(stream, session).await;
                    drop(place);
                });
            }
        })
    }
}

/// Serves one connection until it ends.
async fn serve(mut stream: TcpStream, mut session: Session) -> io::Result<()> {
    // Without this, a reply could wait for the client's acknowledgement of the one before.
    stream.set_nodelay(true)?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let (read, next) = run_all(&mut session, &input, &mut output);
        input.drain(..read);
        if !output.is_empty() {
            timeout(WRITE_PATIENCE, stream.write_all(&output)).await??;
            output.clear();
        }
        match next {
            Some(Next::Ends) => {
                stream.shutdown().await?;
                // The system discards replies that are under way if bytes are left unread.
                let mut rest = stream.take(DISCARDED_BYTES);
                let _ = timeout(DISCARD_PATIENCE, copy(&mut rest, &mut sink())).await;
                return Ok(());
            }
            Some(Next::Reads) => {}
            None => {
                input.reserve(READ_BYTES);
                if stream.read_buf(&mut input).await? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// Runs the commands of `input` until their replies are worth sending. Returns the number of
/// bytes read, and `None` next to it if the rest is no complete command.
fn run_all(session: &mut Session, input: &[u8], output: &mut Vec<u8>) -> (usize, Option<Next>) {
    let mut read = 0;
    while output.len() < REPLIES_BYTES {
        match resp::command(&input[read..]) {
            Ok(None) => return (read, None),
            Ok(Some((words, length))) => {
                read += length;
                if session.run(&words, output) == Next::Ends {
                    return (read, Some(Next::Ends));
                }
            }
            Err(malformed) => {
                output.error(&malformed.to_string());
                return (read, Some(Next::Ends));
            }
        }
    }
    (read, Some(Next::Reads))
}
