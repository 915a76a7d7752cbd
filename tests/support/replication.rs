//! The commands that a primary sends to its replicas.
//!
//! The stream connects as a replica does (`SYNC`), skips the snapshot, and then reads the commands.
//! It sends nothing to the primary, so only the test decides when to read.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::Client;
use super::poll::DEADLINE;

/// One replicated command: its name in upper case, then its unchanged arguments.
pub type Effect = Vec<Vec<u8>>;

pub struct ReplicationStream {
    reader: BufReader<UnixStream>,
    marks: u32,
}

impl ReplicationStream {
    pub fn open(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).expect("a connection");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.write_all(b"SYNC\r\n").expect("the server reads");
        let mut opened = Self { reader: BufReader::new(stream), marks: 0 };
        opened.skip_snapshot();
        opened
    }

    /// Skips the snapshot: newlines while the primary creates it, `$length`, and that many bytes.
    fn skip_snapshot(&mut self) {
        let header = loop {
            let line = self.line();
            if !line.is_empty() {
                break line;
            }
        };
        let length = header.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let length = length.unwrap_or_else(|| panic!("SYNC replied {header}"));
        let mut snapshot = vec![0; length];
        self.reader.read_exact(&mut snapshot).expect("the whole snapshot");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the stream goes on");
        assert!(!line.is_empty(), "the server closed the stream");
        line.trim_end().to_owned()
    }

    fn command(&mut self) -> Effect {
        let header = self.line();
        let count = header.strip_prefix('*').and_then(|digits| digits.parse().ok());
        let count: usize = count.unwrap_or_else(|| panic!("no command: {header}"));
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let header = self.line();
            let length: usize = header[1..].parse().expect("a length");
            let mut word = vec![0; length + 2];
            self.reader.read_exact(&mut word).expect("a whole argument");
            word.truncate(length);
            words.push(word);
        }
        words[0].make_ascii_uppercase();
        words
    }

    /// Returns the effects of all calls since the previous reading, without the server's own PING,
    /// SELECT and REPLCONF. Reads up to a mark that it writes through `client`.
    pub fn effects(&mut self, client: &mut Client) -> Vec<Effect> {
        self.marks += 1;
        let mark = format!("mark:{}", self.marks);
        client.ok(&format!("SET {mark} 1"));
        let mut effects = Vec::new();
        loop {
            let command = self.command();
            if command.get(1).is_some_and(|key| key == mark.as_bytes()) {
                return effects;
            }
            if !matches!(command[0].as_slice(), b"PING" | b"SELECT" | b"REPLCONF") {
                effects.push(command);
            }
        }
    }
}
