//! The lines of a file, plain or compressed, or of the standard input.

use flate2::bufread::GzDecoder;
use memchr::memchr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest line, in bytes without its end.
pub const LINE_LEN_MAX: usize = 64 << 10;

/// The name of the standard input among the files.
pub const STANDARD_INPUT: &str = "-";

/// The mark that some programs write at the head of a text in UTF-8. It belongs to no line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The memory for the lines of one file. It holds the longest line and more.
const BUFFER_LEN: usize = 2 * LINE_LEN_MAX;

/// The compressions that are recognised and not read, with the program that reads them.
const OTHERS: [(&[u8], &str); 3] =
    [(b"\x28\xb5\x2f\xfd", "zstdcat"), (b"BZh", "bzcat"), (b"\xfd7zXZ", "xzcat")];

/// The lines of one file.
pub struct Lines {
    input: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    /// The part of the buffer that was read and not yet returned.
    start: usize,
    end: usize,
    /// The number of the line that was returned last, counted from 1.
    number: u64,
    ended: bool,
    is_gzip: bool,
    /// The reason why a compressed file ended before its end.
    cut: Option<String>,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// The bytes of the line, without its end.
    Text(&'a [u8]),
    /// A line with more than [`LINE_LEN_MAX`] bytes, of which these are the first.
    TooLong(&'a [u8]),
}

/// The members of a gzip file, one after the other, without the zeros that pad some.
struct Members<R: Read> {
    /// Absent after the last member.
    member: Option<GzDecoder<BufReader<R>>>,
}

impl<R: Read> Members<R> {
    fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(BufReader::with_capacity(BUFFER_LEN, input))) }
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let len = member.read(buffer)?;
            if len > 0 || buffer.is_empty() {
                return Ok(len);
            }
            let mut input = self.member.take().map(GzDecoder::into_inner);
            let next = loop {
                let Some(input) = &mut input else { return Ok(0) };
                let bytes = input.fill_buf()?;
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                if zeros == 0 {
                    break bytes.first().copied();
                }
                input.consume(zeros);
            };
            match next {
                None => {}
                Some(0x1f) => self.member = input.map(GzDecoder::new),
                Some(_) => return Err(io::Error::other("bytes behind its end")),
            }
        }
        Ok(0)
    }
}

/// Counts the bytes that are read.
struct Metered<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

impl Lines {
    /// Opens a file, or the standard input for `-`. Adds the bytes that are read, before they are
    /// decompressed, to `read`.
    ///
    /// # Errors
    ///
    /// The error of the system, or a text for a compression that is not read.
    pub fn open(path: &str, read: Arc<AtomicU64>) -> io::Result<Self> {
        if path == STANDARD_INPUT {
            return Self::of(Metered { input: io::stdin(), read });
        }
        let input = File::open(path)?;
        if input.metadata()?.is_dir() {
            return Err(io::Error::other("it is a folder: expected a file"));
        }
        Self::of(Metered { input, read })
    }

    /// Creates the lines of an input, which is decompressed if it begins as gzip files do.
    ///
    /// # Errors
    ///
    /// The error of the input, or a text for a compression that is not read.
    pub fn of(mut input: impl Read + Send + 'static) -> io::Result<Self> {
        let mut magic = Vec::new();
        input.by_ref().take(6).read_to_end(&mut magic)?;
        if let Some((_, program)) = OTHERS.iter().find(|(other, _)| magic.starts_with(other)) {
            let advice = format!(
                "its compression is not gzip: pipe it, as in {program} FILE | \
                                  redis-throttle-lab replay -"
            );
            return Err(io::Error::other(advice));
        }
        let is_gzip = magic.starts_with(b"\x1f\x8b");
        let whole = Cursor::new(magic).chain(input);
        let mut input: Box<dyn Read + Send> =
            if is_gzip { Box::new(Members::new(whole)) } else { Box::new(whole) };
        let mut head = Vec::new();
        input.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut head)?;
        if head == BYTE_ORDER_MARK {
            head.clear();
        }
        let input: Box<dyn Read + Send> = Box::new(Cursor::new(head).chain(input));
        let buffer = vec![0; BUFFER_LEN].into();
        let (start, end, number, ended, cut) = (0, 0, 0, false, None);
        Ok(Self { input, buffer, start, end, number, ended, is_gzip, cut })
    }

    /// Returns the number of the line that was returned last, counted from 1.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next line; `None` after the last one. A carriage return at the end of a line
    /// belongs to the end.
    ///
    /// # Errors
    ///
    /// The error of the input, or a text for an input whose lines end with a carriage return alone.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        loop {
            if let Some(len) = memchr(b'\n', self.unread(searched)) {
                return Ok(Some(self.line_until(searched + len)));
            }
            searched = self.end;
            if self.end - self.start > LINE_LEN_MAX {
                return self.skip_long_line().map(Some);
            }
            if self.ended {
                let is_over = self.start == self.end;
                self.check_ends()?;
                return Ok(if is_over { None } else { Some(self.line_until(self.end)) });
            }
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                searched -= self.start;
                (self.start, self.end) = (0, self.end - self.start);
            }
            self.fill()?;
        }
    }

    /// Returns the lines of the beginning of the input, without reading past them; call it before
    /// the first line is read.
    ///
    /// # Errors
    ///
    /// The error of the input.
    pub fn preview(&mut self) -> io::Result<impl Iterator<Item = &[u8]>> {
        while !self.ended && self.end < self.buffer.len() {
            self.fill()?;
        }
        let text = self.buffer.get(self.start..self.end).unwrap_or_default();
        let is_whole = self.ended || text.last() == Some(&b'\n');
        let whole = if is_whole { text.len() } else { memchr::memrchr(b'\n', text).unwrap_or(0) };
        let lines = text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        Ok(lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Closes the file and frees its memory. There are no further lines.
    pub fn close(&mut self) {
        self.input = Box::new(io::empty());
        self.buffer = Box::default();
        (self.start, self.end, self.ended) = (0, 0, true);
    }

    fn unread(&self, from: usize) -> &[u8] {
        self.buffer.get(from..self.end).unwrap_or_default()
    }

    /// Returns the reason why a compressed file ended before its end, after its last line.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Reads as much as the input has ready. A compressed file that is damaged ends before the
    /// line in which the damage is.
    fn fill(&mut self) -> io::Result<()> {
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let len = loop {
            match self.input.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.is_gzip => {
                    self.cut = Some(format!("its compression is damaged ({error})"));
                    let text = self.buffer.get(self.start..self.end).unwrap_or_default();
                    let whole = memchr::memrchr(b'\n', text).map_or(0, |at| at + 1);
                    self.end = self.start + whole;
                    break 0;
                }
                len => break len?,
            }
        };
        self.end += len;
        self.ended = len == 0;
        Ok(())
    }

    /// Returns an error if the unread text is the first of the input, has no line feed, and has a
    /// carriage return in it: it is several lines that would be read as one.
    fn check_ends(&self) -> io::Result<()> {
        let text = self.unread(self.start);
        let inner = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
        if self.number > 0 || memchr(b'\r', inner).is_none() {
            return Ok(());
        }
        let advice = "its lines end with a carriage return alone: pipe it, as in tr '\\r' '\\n' < \
                      FILE | redis-throttle-lab replay -";
        Err(io::Error::other(advice))
    }

    /// Returns the line that ends before `end`.
    fn line_until(&mut self, end: usize) -> Line<'_> {
        let start = self.start;
        // The last line of a file may have no end.
        self.start = (end + 1).min(self.end);
        self.number += 1;
        let line = self.buffer.get(start..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.get(..LINE_LEN_MAX) {
            Some(cut) if cut.len() < line.len() => Line::TooLong(cut),
            _ => Line::Text(line),
        }
    }

    /// Skips the line at the front of the buffer, and keeps its beginning to return it.
    fn skip_long_line(&mut self) -> io::Result<Line<'_>> {
        self.check_ends()?;
        self.buffer.copy_within(self.start..self.end, 0);
        let kept = LINE_LEN_MAX;
        (self.start, self.end) = (kept, kept);
        while !self.ended {
            self.fill()?;
            if let Some(len) = memchr(b'\n', self.unread(kept)) {
                self.start = kept + len + 1;
                break;
            }
            if !self.ended {
                self.end = kept;
            }
        }
        self.start = self.start.min(self.end);
        self.number += 1;
        Ok(Line::TooLong(self.buffer.get(..kept).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests;
