//! The end of a replay without a report: a text that says what to do, and an exit status.

use std::fmt;

/// The exit status if too many lines were not read.
pub const BAD_LINES: u8 = 1;
/// The exit status if an argument or a file is wrong.
pub const USAGE: u8 = 2;

/// The reason why a replay ended without a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status of the program.
    pub status: u8,
    /// The mistake, and the way out.
    pub text: String,
}

impl Failure {
    /// Makes the failure of an argument or a file.
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
