//! The progress bar on a terminal: bytes read of the bytes of all files.

use super::lines::STANDARD_INPUT;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::{IsTerminal as _, stderr};

/// A progress bar; nothing if the standard error is not a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates the bar for these files.
    pub fn new(paths: &[String]) -> Self {
        if !stderr().is_terminal() {
            return Self { bar: None };
        }
        let is_known = paths.iter().all(|path| path != STANDARD_INPUT);
        let lens = paths.iter().filter_map(|path| fs::metadata(path).ok());
        let len: u64 = lens.map(|metadata| metadata.len()).sum();
        let template = if is_known {
            "{bytes} of {total_bytes} [{bar:30}] {percent} %, {eta} left"
        } else {
            "{bytes} read in {elapsed}"
        };
        let bar = if is_known { ProgressBar::new(len) } else { ProgressBar::no_length() };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar: Some(bar) }
    }

    /// Shows the number of bytes read so far.
    pub fn show(&self, read: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(read);
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
