//! The end of a replay without a report: a text that says what to do, and an exit status.

use super::escaping::printable;
use super::lines::STANDARD_INPUT;
use std::fmt;
use std::io;

/// The number of characters of a path that are printed.
const PATH_LEN: usize = 1_000;

/// The exit status if too many lines were not read.
pub const BAD_LINES: u8 = 1;
/// The exit status if an argument or a file is wrong.
pub const USAGE: u8 = 2;

/// The reason why a replay ended without a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status of the program.
    pub status: u8,
    /// The error, and the way out.
    pub text: String,
}

impl Failure {
    /// Creates the failure of a file that cannot be read.
    pub fn of_file(path: &str, error: &io::Error) -> Self {
        if path == STANDARD_INPUT {
            return Self::usage(format!("cannot read the standard input: {error}"));
        }
        Self::usage(format!("cannot read {}: {error}", printable(path.as_bytes(), PATH_LEN)))
    }

    /// Creates the failure of an argument or a file.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { status: USAGE, text: text.into() }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::usage(text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}
