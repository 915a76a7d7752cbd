//! The addresses of the page and of the server.

use std::io;
use std::net::{SocketAddr, TcpListener};

/// Listens on an address, given as `host:port`, and returns the one that it has. `other` is one to
/// try if the port is in use.
///
/// # Errors
///
/// Returns a line that says what is wrong and what to do.
pub fn bind(listen: &str, other: &str) -> Result<(TcpListener, SocketAddr), String> {
    let listening = TcpListener::bind(listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    listening.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "cannot listen on {listen}: the port is in use; choose another one, such as \
             --listen {other}"
        ),
        _ => format!("cannot listen on {listen}: {error}"),
    })
}
