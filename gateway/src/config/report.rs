//! The mistakes and warnings of one file, each with its place.

use std::fmt;

/// The most mistakes of a file that are reported, and the most warnings.
const REMARKS_MAX: usize = 100;

/// A place in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// A remark on a file: a mistake, or a warning. Printed as `file:line:column: text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The path of the file or the folder.
    pub file: String,
    /// The place; `None` if the remark is about the whole file.
    pub at: Option<At>,
    /// The mistake, and the way to mend it.
    pub text: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, at, text } = self;
        match at {
            Some(At { line, column }) => write!(formatter, "{file}:{line}:{column}: {text}"),
            None => write!(formatter, "{file}: {text}"),
        }
    }
}

/// Collects the remarks on one file. Reading goes on after a mistake, so that one run reports all.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    file: &'a str,
    pub mistakes: Vec<Remark>,
    pub warnings: Vec<Remark>,
}

impl<'a> Report<'a> {
    pub fn new(file: &'a str) -> Self {
        Self { file, mistakes: Vec::new(), warnings: Vec::new() }
    }

    pub fn mistake(&mut self, at: At, text: impl Into<String>) {
        if self.mistakes.len() < REMARKS_MAX {
            self.mistakes.push(self.remark(at, text.into()));
        }
    }

    pub fn warning(&mut self, at: At, text: impl Into<String>) {
        if self.warnings.len() < REMARKS_MAX {
            self.warnings.push(self.remark(at, text.into()));
        }
    }

    /// Notes the mistake of a result, and returns its value.
    pub fn noted<T, E: fmt::Display>(&mut self, at: At, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.mistake(at, error.to_string())).ok()
    }

    /// Sorts the remarks by their places.
    pub fn sort(&mut self) {
        self.mistakes.sort_by_key(|remark| remark.at);
        self.warnings.sort_by_key(|remark| remark.at);
    }

    fn remark(&self, at: At, text: String) -> Remark {
        Remark { file: self.file.to_owned(), at: Some(at), text }
    }
}
