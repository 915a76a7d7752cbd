//! What is said on standard error, which may be full, closed or read by nobody: that is no reason
//! not to answer.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// Says a line, when somebody takes it.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What was said last about something that is well or is not: only a change is a line.
#[derive(Default)]
pub struct Told(Mutex<Option<Option<String>>>);

impl Told {
    /// Whether this is another state, or another reason, than that of the last time.
    pub fn changes<T>(&self, state: &Result<T, String>) -> bool {
        let state = state.as_ref().err().cloned();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = told.as_ref() != Some(&state);
        *told = Some(state);
        changes
    }
}
