//! The result of a simulation: a header in JSON, then columns of numbers in little-endian order.
//!
//! ```text
//! u32         the length of the header, with its padding
//! header      JSON; spaces up to a multiple of 8 bytes
//! columns     each starts at a multiple of 8 bytes after the header
//! ```
//!
//! A column has the narrowest type that holds all its values, because the result may have millions
//! of them.

use crate::rules::RuleError;
use crate::simulation::column::Column;
use crate::simulation::measures::Summary;
use crate::simulation::{Columns, Outcome, Results, START, Scenario, run};
use crate::traffic::TooManyCalls;
use hyper::body::Bytes;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The columns of one choice, and the part of the header that describes it.
#[derive(Default)]
struct Section {
    pieces: Vec<Bytes>,
    len: usize,
    header: Map<String, Value>,
}

/// Runs a scenario and returns the pieces of the response body, in order.
///
/// # Errors
///
/// Returns [`TooManyCalls`] if the traffic has too many.
pub fn result_body(scenario: &Scenario) -> Result<VecDeque<Bytes>, TooManyCalls> {
    let Results { offered, choices } = run(scenario, Section::of)?;
    let (mut headers, mut pieces) = (Vec::new(), VecDeque::new());
    let mut offset = 0;
    for choice in choices {
        match choice {
            Err(RuleError { rule, text }) => {
                headers.push(json!({"error": {"rule": rule, "text": text}}));
            }
            Ok(mut section) => {
                section.header.values_mut().for_each(|value| move_offsets(value, offset));
                headers.push(Value::Object(section.header));
                offset += section.len;
                pieces.extend(section.pieces);
            }
        }
    }
    let header = json!({
        "start_us": START.as_us(),
        "duration_ms": scenario.traffic.duration_ms,
        "offered": offered,
        "choices": headers,
    });
    pieces.push_front(framed(&header.to_string()).into());
    Ok(pieces)
}

/// Returns a header with its length in front of it.
///
/// The columns start after the header. They lie at multiples of 8 bytes from there, and not from
/// the start of the body.
fn framed(header: &str) -> Vec<u8> {
    let len = header.len().next_multiple_of(8);
    let mut bytes = Vec::with_capacity(4 + len);
    bytes.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(4 + len, b' ');
    bytes
}

/// Adds `by` to every offset in a part of the header.
fn move_offsets(value: &mut Value, by: usize) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| move_offsets(value, by)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_u64() {
                    Some(offset) if name == "offset" => *value = json!(offset + by as u64),
                    _ => move_offsets(value, by),
                }
            }
        }
        _ => {}
    }
}

impl Section {
    fn of(outcome: Outcome) -> Self {
        let mut section = Self::default();
        let calls = outcome.columns.len();
        let Columns { at_us, key, attempt, integers, rule } = outcome.columns;
        let [allowed, limit, remaining, retry_after_ms, reset_after_ms] = integers;
        let columns = json!({
            "at_us": section.place(at_us),
            "key": section.place(key),
            "attempt": section.place(attempt),
            "allowed": section.place(allowed),
            "limit": section.place(limit),
            "remaining": section.place(remaining),
            "retry_after_ms": section.place(retry_after_ms),
            "reset_after_ms": section.place(reset_after_ms),
            "rule": section.place(rule),
        });
        let level = |level: Column| {
            let count = level.len();
            let mut place = section.place(level);
            place["count"] = json!(count);
            place
        };
        let levels: Vec<_> = outcome.levels.into_iter().map(level).collect();
        let fields = [
            ("calls", json!(calls)),
            ("truncated", json!(outcome.truncated)),
            ("columns", columns),
            ("level", json!({"rules": levels})),
            ("summary", summary(&outcome.summary)),
            ("rule_texts", json!(outcome.texts.rules)),
            ("policy_lines", json!(outcome.texts.policy_lines)),
            ("command", json!(outcome.texts.command)),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
        section.header = fields.collect();
        section
    }

    /// Adds a column with its padding, and returns its type and place.
    fn place(&mut self, column: Column) -> Value {
        let place = json!({"type": column.kind().name(), "offset": self.len});
        let mut bytes = column.into_bytes();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        self.len += bytes.len();
        self.pieces.push(bytes.into());
        place
    }
}

fn summary(summary: &Summary) -> Value {
    let windows = summary.windows.iter().map(|window| {
        json!({
            "window_ms": window.bound.window.as_ms_ceil(),
            "most_units": window.most_units,
            "promised_units": window.bound.units,
        })
    });
    json!({
        "allowed": summary.allowed,
        "denied": summary.denied,
        "granted_units": summary.granted_units,
        "first_attempts_denied": summary.first_attempts_denied,
        "longest_wait_ms": summary.longest_wait_ms,
        "queued": summary.queued,
        "longest_queue_ms": summary.longest_queue_ms,
        "windows": windows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_padded_and_its_length_counts_the_padding() {
        for (header, len) in [("", 0_u8), ("{}", 8), ("12345678", 8), ("123456789", 16)] {
            let bytes = framed(header);
            assert_eq!(bytes.len(), 4 + usize::from(len), "{header}");
            assert_eq!(bytes[..4], [len, 0, 0, 0], "{header}");
            assert_eq!(String::from_utf8_lossy(&bytes[4..]).trim_end(), header);
        }
    }

    #[test]
    fn offsets_move_at_any_depth() {
        let mut header = json!({"offset": 8, "calls": 3, "of": [{"offset": 0, "count": 1}]});
        move_offsets(&mut header, 16);
        assert_eq!(header, json!({"offset": 24, "calls": 3, "of": [{"offset": 16, "count": 1}]}));
    }
}
