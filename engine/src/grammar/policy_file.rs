//! The policy file. Each line holds the words that follow `RL.POLICY SET`, or nothing. A comment
//! runs from `#` to the end of the line.
//!
//! ```text
//! # limits of the search
//! search             GCRA 6 10 1m
//! search@plan:gold   SHADOW GCRA 60 100 1m   # until the first of the month
//! ```

#[cfg(test)]
mod tests;

use crate::grammar::error::GrammarError;
use crate::grammar::policy::definition;
use crate::policy::families::Refusal;
use crate::policy::file_set::FileSet;

/// The longest file, in bytes.
pub const FILE_LEN_MAX: usize = 4 << 20;

/// The longest line, in bytes, without its comment.
const LINE_LEN_MAX: usize = 1_024;

/// The mark that some editors write at the head of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The largest number of words that are parsed. The longest definition has twelve, so a longer line
/// has an error among the words that are parsed.
const WORDS_MAX: usize = 16;

/// An error in a file, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The line, counted from 1.
    pub line: u32,
    /// The error.
    pub fault: LineFault,
}

/// An error in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// The words are invalid.
    Grammar(GrammarError),
    /// The policy is refused because of an earlier line.
    Refused(Refusal),
    /// The policy has an `EX`, which a file may not contain: policies of a file do not expire.
    Ends,
    /// The line is too long.
    TooLong,
}

/// Parses a file. A line ends with a line feed, or a carriage return and a line feed. The last line
/// may end without either. A byte order mark at the head of the file is skipped.
///
/// # Errors
///
/// Returns the first error, from top to bottom.
pub fn policy_file(text: &[u8]) -> Result<FileSet, LineError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut bases = FileSet::default();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        add(&mut bases, line).map_err(|fault| LineError { line: number, fault })?;
    }
    Ok(bases)
}

fn add(bases: &mut FileSet, line: &[u8]) -> Result<(), LineFault> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    if line.len() > LINE_LEN_MAX {
        return Err(LineFault::TooLong);
    }
    let mut words = [[].as_slice(); WORDS_MAX];
    let found = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let len = words.iter_mut().zip(found).map(|(place, word)| *place = word).count();
    let Some(words @ [_, ..]) = words.get(..len) else { return Ok(()) };
    let definition = definition(words).map_err(LineFault::Grammar)?;
    if definition.lasts.is_some() {
        return Err(LineFault::Ends);
    }
    bases.add(definition.name, definition.setting).map_err(LineFault::Refused)
}
