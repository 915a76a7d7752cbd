//! Sends requests over a connection each, and reads the responses.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Response {
    /// Returns the value of a field whose name is given in lower case; empty without one.
    pub fn field(&self, name: &str) -> String {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = fields.filter(|(other, _)| other.to_ascii_lowercase() == name);
        found.map(|(_, value)| value.to_owned()).next().unwrap_or_default()
    }
}

pub async fn get(port: u16, target: &str, fields: &[(&str, &str)]) -> Response {
    send(port, ("GET", target), fields, "").await.expect("a response")
}

/// Sends a request; `None` without a response.
pub async fn send(
    port: u16,
    (method, target): (&str, &str),
    fields: &[(&str, &str)],
    body: &str,
) -> Option<Response> {
    let mut text =
        format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
    fields.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    // A server that refuses the head may close before it has read everything.
    // A character is one byte, so that fields may hold bytes that are not UTF-8.
    let bytes: Vec<u8> = text.chars().map(|one| u8::try_from(one).expect("a byte")).collect();
    let _ = stream.write_all(&bytes).await;
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read).await;
    let text = String::from_utf8_lossy(&read);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Response { status, head: head.to_owned(), body: body.to_owned() })
}
