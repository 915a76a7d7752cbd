//! Messages on standard error. Standard error may be full, closed or unread, which must not stop
//! the exporter.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// Writes a line, and ignores a failure to write it.
pub fn write(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The last logged state, up or down, of a server or a cluster. Only a change is logged.
#[derive(Default)]
pub struct LastState(Mutex<Option<Option<String>>>);

impl LastState {
    /// Records the state. Returns true if the state, or the reason for being down, differs from the
    /// last one.
    pub fn changes<T>(&self, state: &Result<T, String>) -> bool {
        let state = state.as_ref().err().cloned();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = last.as_ref() != Some(&state);
        *last = Some(state);
        changes
    }
}
