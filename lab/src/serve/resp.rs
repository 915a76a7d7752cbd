//! The protocol: the bytes of a connection to commands, and replies to bytes.

use redis_throttle_engine::keyspace::Reply;
use std::fmt::{self, Display, Formatter};

/// The most bytes of a command, with all that frames it.
pub const COMMAND_MAX_BYTES: usize = 256 * 1024;
/// The most words of a command.
pub const WORDS_MAX: usize = 1_024;
/// The most bytes of a line: of a length, or of a command that is a line.
const LINE_MAX_BYTES: usize = 64 * 1024;

/// The words of a command.
pub type Words<'a> = Vec<&'a [u8]>;

/// The error for bytes that form no command. The rest of the connection cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// An invalid number of words.
    Count,
    /// An invalid length of a word.
    Length,
    /// A word that does not begin with `$`, but with this byte.
    Word(u8),
    /// A word that is longer than its length.
    End,
    /// A line that does not end.
    Line,
    /// A command that is too long.
    Command,
}

impl Display for Malformed {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str("ERR Protocol error: ")?;
        match self {
            Self::Count => to.write_str("invalid multibulk length"),
            Self::Length => to.write_str("invalid bulk length"),
            Self::Word(byte) => write!(to, "expected '$', got '{}'", byte.escape_ascii()),
            Self::End => to.write_str("expected CRLF after a bulk string"),
            Self::Line => to.write_str("too big inline request"),
            Self::Command => write!(to, "a command has at most {COMMAND_MAX_BYTES} bytes"),
        }
    }
}

/// Reads the first command of `input`, and returns its words and the number of its bytes; `None` if
/// it is incomplete. A command without words is to be skipped.
///
/// # Errors
///
/// [`Malformed`] as soon as no further bytes can make it a command within the limits.
pub fn command(input: &[u8]) -> Result<Option<(Words<'_>, usize)>, Malformed> {
    let read = match input.first() {
        None => return Ok(None),
        Some(b'*') => array(input)?,
        Some(_) => line(input)?.map(|(line, end)| {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            (words.take(WORDS_MAX + 1).collect(), end)
        }),
    };
    match &read {
        Some((words, _)) if words.len() > WORDS_MAX => Err(Malformed::Count),
        Some((_, end)) if *end > COMMAND_MAX_BYTES => Err(Malformed::Command),
        None if input.len() >= COMMAND_MAX_BYTES => Err(Malformed::Command),
        _ => Ok(read),
    }
}

fn array(input: &[u8]) -> Result<Option<(Words<'_>, usize)>, Malformed> {
    let Some((count, mut at)) = line(input)? else { return Ok(None) };
    let count = number(&count[1..]).ok_or(Malformed::Count)?;
    // A server skips a negative number of words too.
    let count = usize::try_from(count).unwrap_or(0);
    if count > WORDS_MAX {
        return Err(Malformed::Count);
    }
    let mut words = Vec::with_capacity(count);
    while words.len() < count {
        let rest = &input[at..];
        match rest.first() {
            None => return Ok(None),
            Some(b'$') => {}
            Some(byte) => return Err(Malformed::Word(*byte)),
        }
        let Some((length, start)) = line(rest)? else { return Ok(None) };
        let length = number(&length[1..]).and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(Malformed::Length)?;
        if length > COMMAND_MAX_BYTES {
            return Err(Malformed::Length);
        }
        let end = start + length;
        match rest.get(end..end + 2) {
            Some(b"\r\n") => words.push(&rest[start..end]),
            Some(_) => return Err(Malformed::End),
            None => return Ok(None),
        }
        at += end + 2;
    }
    Ok(Some((words, at)))
}

/// Returns the first line without its end, and the place after its end.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let searched = &input[..input.len().min(LINE_MAX_BYTES)];
    let Some(end) = memchr::memchr(b'\n', searched) else {
        return if input.len() < LINE_MAX_BYTES { Ok(None) } else { Err(Malformed::Line) };
    };
    let line = &input[..end];
    Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
}

fn number(text: &[u8]) -> Option<i64> {
    // `parse` also takes a plus sign, which the protocol does not have.
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    text.parse().ok()
}

/// Writes replies.
pub trait Write {
    /// Writes a simple string.
    fn simple(&mut self, text: &str);
    /// Writes an error, with its prefix such as `ERR`.
    fn error(&mut self, text: &str);
    /// Writes an integer.
    fn integer(&mut self, integer: i64);
    /// Writes a bulk string.
    fn bulk(&mut self, bytes: &[u8]);
    /// Writes the start of an array, or with another mark, of a map.
    fn start(&mut self, mark: char, length: usize);
    /// Writes the reply of a command of the module.
    fn reply(&mut self, reply: &Reply);
}

impl Write for Vec<u8> {
    fn simple(&mut self, text: &str) {
        self.extend_from_slice(format!("+{text}\r\n").as_bytes());
    }

    fn error(&mut self, text: &str) {
        self.extend_from_slice(format!("-{text}\r\n").as_bytes());
    }

    fn integer(&mut self, integer: i64) {
        self.extend_from_slice(format!(":{integer}\r\n").as_bytes());
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.start('$', bytes.len());
        self.extend_from_slice(bytes);
        self.extend_from_slice(b"\r\n");
    }

    fn start(&mut self, mark: char, length: usize) {
        self.extend_from_slice(format!("{mark}{length}\r\n").as_bytes());
    }

    fn reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Okay => self.simple("OK"),
            Reply::Integer(integer) => self.integer(*integer),
            Reply::Array(all) => {
                self.start('*', all.len());
                all.iter().for_each(|reply| self.reply(reply));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn command_is_an_array_of_words_or_a_line() {
        let table: [(&[u8], &[&[u8]]); 9] = [
            (b"*1\r\n$4\r\nPING\r\n", &[b"PING"]),
            (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", &[b"ECHO", b""]),
            (b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n*1\r\n", &[b"ECHO", b"\r\n*1"]),
            (b"PING\r\n", &[b"PING"]),
            (b"PING\n", &[b"PING"]),
            (b"  RL.GCRA  k 1 1\t1m \r\n", &[b"RL.GCRA", b"k", b"1", b"1", b"1m"]),
            (b"\r\n", &[]),
            (b"*0\r\n", &[]),
            (b"*-1\r\n", &[]),
        ];
        for (input, words) in table {
            let whole = [input, b"*9"].concat();
            assert_eq!(command(&whole), Ok(Some((words.to_vec(), input.len()))), "{whole:?}");
            // Every beginning of it is incomplete, and none is malformed.
            for length in 0..input.len() {
                assert_eq!(command(&input[..length]), Ok(None), "{:?}", &input[..length]);
            }
        }
    }

    #[test]
    fn malformed_bytes_are_an_error_as_soon_as_they_arrive() {
        let long = vec![b'x'; LINE_MAX_BYTES];
        let star = [b"*", long.as_slice()].concat();
        let words = b"x ".repeat(WORDS_MAX + 1);
        let table: [(&[u8], Malformed); 16] = [
            (b"*x\r\n", Malformed::Count),
            (b"*\r\n", Malformed::Count),
            (b"*+1\r\n", Malformed::Count),
            (b"*1025\r\n", Malformed::Count),
            (b"*99999999999999999999\r\n", Malformed::Count),
            (b"*1\r\n:", Malformed::Word(b':')),
            (b"*1\r\n\xff", Malformed::Word(0xff)),
            (b"*1\r\n$-1\r\n", Malformed::Length),
            (b"*1\r\n$\r\n", Malformed::Length),
            (b"*1\r\n$1 \r\n", Malformed::Length),
            (b"*1\r\n$9223372036854775807\r\n", Malformed::Length),
            (b"*1\r\n$262145\r\n", Malformed::Length),
            (b"*1\r\n$4\r\nPINGS\r\n", Malformed::End),
            (&long, Malformed::Line),
            (&star, Malformed::Line),
            (&[words.as_slice(), b"\n"].concat(), Malformed::Count),
        ];
        for (input, expected) in table {
            let start = &input[..input.len().min(40)];
            assert_eq!(command(input), Err(expected), "{}", start.escape_ascii());
        }
        assert_eq!(
            Malformed::Word(0xff).to_string(),
            r"ERR Protocol error: expected '$', got '\xff'"
        );
    }

    #[test]
    fn command_of_too_many_bytes_is_an_error_before_it_is_complete() {
        let mut input = b"*9\r\n".to_vec();
        while input.len() < COMMAND_MAX_BYTES {
            assert_eq!(command(&input), Ok(None));
            input.extend_from_slice(b"$65536\r\n");
            input.extend_from_slice(&[b'x'; 65_536]);
            input.extend_from_slice(b"\r\n");
        }
        assert_eq!(command(&input), Err(Malformed::Command));
    }

    proptest! {
        #[test]
        fn written_words_are_read_and_every_beginning_is_incomplete(
            words in vec(vec(any::<u8>(), 0..20), 1..6),
            rest in vec(any::<u8>(), 0..9),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut input = Vec::new();
            input.start('*', words.len());
            words.iter().for_each(|word| input.bulk(word));
            let length = input.len();
            prop_assert_eq!(command(&input[..cut.index(length)]), Ok(None));
            input.extend(rest);
            let expected: Words<'_> = words.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(command(&input), Ok(Some((expected, length))));
        }

        #[test]
        fn more_bytes_change_nothing_that_is_decided(
            // Bytes of which many are almost a command.
            input in vec(prop::sample::select(b"*$0123-9\r\nPa \xff".to_vec()), 0..40),
            cut in any::<prop::sample::Index>(),
        ) {
            let beginning = &input[..cut.index(input.len() + 1)];
            match command(beginning) {
                Ok(None) => {}
                decided => prop_assert_eq!(command(&input), decided),
            }
        }
    }
}
