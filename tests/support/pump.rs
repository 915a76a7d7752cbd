//! Makes a large number of calls in a short time: sends them in bulk, and counts the replies
//! instead of storing them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::os::unix::net::UnixStream;

use super::Server;
use super::poll::DEADLINE;

/// The number of calls per write. The replies to up to two writes may be unread at once; a socket
/// buffer holds them.
const BATCH: usize = 500;

/// The number of replies of each kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub allowed: usize,
    pub denied: usize,
    pub errors: usize,
    pub out_of_memory: usize,
    /// Replies of any other kind.
    pub others: usize,
}

impl Tally {
    pub fn replies(&self) -> usize {
        self.allowed + self.denied + self.errors + self.out_of_memory + self.others
    }
}

pub struct Pump {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl Pump {
    pub fn new(server: &Server) -> Self {
        let stream = UnixStream::connect(server.file("socket")).expect("a connection");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let replies = BufReader::with_capacity(1 << 16, stream.try_clone().expect("a reader"));
        Self { stream, replies, line: Vec::new() }
    }

    /// Makes `count` calls. For each number, `line` writes the call into the buffer, its arguments
    /// separated by spaces.
    pub fn run(&mut self, count: usize, line: impl Fn(usize, &mut Vec<u8>)) -> Tally {
        let mut plain = Vec::new();
        self.send(count, |batch, packed| {
            packed.clear();
            for number in batch {
                plain.clear();
                line(number, &mut plain);
                pack(&plain, packed);
            }
        })
    }

    /// Makes the same call `count` times, with as little work for the client as possible.
    pub fn repeat(&mut self, count: usize, line: &str) -> Tally {
        self.send(count, |batch, packed| {
            let mut one = Vec::new();
            pack(line.as_bytes(), &mut one);
            if packed.len() != one.len() * batch.len() {
                *packed = one.repeat(batch.len());
            }
        })
    }

    /// Sends the batches that `fill` writes. Reads the replies of each batch after sending the
    /// next.
    fn send(&mut self, count: usize, mut fill: impl FnMut(Range<usize>, &mut Vec<u8>)) -> Tally {
        let mut tally = Tally::default();
        let mut packed = Vec::new();
        let mut unread = 0;
        for start in (0..count).step_by(BATCH) {
            let batch = start..count.min(start + BATCH);
            fill(batch.clone(), &mut packed);
            self.stream.write_all(&packed).expect("the server reads");
            (0..unread).for_each(|_| self.count_reply(&mut tally));
            unread = batch.len();
        }
        (0..unread).for_each(|_| self.count_reply(&mut tally));
        assert_eq!(tally.replies(), count, "a reply to every call");
        tally
    }

    fn count_reply(&mut self, tally: &mut Tally) {
        match self.next_line() {
            b"*5" => {
                let allowed = self.next_line() == b":1";
                for _ in 0..4 {
                    self.next_line();
                }
                if allowed { tally.allowed += 1 } else { tally.denied += 1 }
            }
            oom if oom.starts_with(b"-OOM") => tally.out_of_memory += 1,
            error if error.starts_with(b"-") => tally.errors += 1,
            _ => {
                tally.others += 1;
                self.skip_rest();
            }
        }
    }

    /// Skips the elements of a flat array of texts and integers, whose header is already read.
    fn skip_rest(&mut self) {
        let Some(count) = number_after(&self.line, b'*') else { return };
        for _ in 0..count {
            self.next_line();
            if number_after(&self.line, b'$').is_some() {
                self.next_line();
            }
        }
    }

    fn next_line(&mut self) -> &[u8] {
        self.line.clear();
        self.replies.read_until(b'\n', &mut self.line).expect("the server replies");
        assert!(self.line.ends_with(b"\r\n"), "the server closed the connection");
        self.line.truncate(self.line.len() - 2);
        &self.line
    }
}

fn number_after(line: &[u8], mark: u8) -> Option<usize> {
    let digits = line.strip_prefix(&[mark])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn pack(line: &[u8], packed: &mut Vec<u8>) {
    let words = line.split(|byte| *byte == b' ');
    write!(packed, "*{}\r\n", words.clone().count()).expect("a buffer takes all");
    for word in words {
        write!(packed, "${}\r\n", word.len()).expect("a buffer takes all");
        packed.extend_from_slice(word);
        packed.extend_from_slice(b"\r\n");
    }
}
