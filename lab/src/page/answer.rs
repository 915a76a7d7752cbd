//! The answer to a simulation: a header in JSON, then columns of numbers in little-endian order.
//!
//! ```text
//! u32         the length of the header, with its padding
//! header      JSON; spaces up to a multiple of 8 bytes
//! columns     each starts at a multiple of 8 bytes after the header
//! ```
//!
//! A column has the narrowest type that holds all its values, because the answer may have millions
//! of them.

use crate::rules::RuleError;
use crate::simulation::measures::Summary;
use crate::simulation::{Outcome, Results, START, Scenario};
use crate::traffic::TooManyCalls;
use hyper::body::Bytes;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    U8,
    U16,
    U32,
    I32,
    F64,
}

/// The columns of one choice, and the part of the header that describes it.
struct Section {
    bytes: Vec<u8>,
    header: Map<String, Value>,
}

/// Runs a scenario and returns the pieces of the answer, in order.
///
/// # Errors
///
/// Returns [`TooManyCalls`] if the traffic has too many.
pub fn answer(scenario: &Scenario) -> Result<VecDeque<Bytes>, TooManyCalls> {
    let Results { offered, choices } = crate::simulation::run(scenario, Outcome::into_section)?;
    let (mut headers, mut pieces) = (Vec::new(), VecDeque::new());
    let mut offset = 0;
    for choice in choices {
        match choice {
            Err(RuleError { rule, text }) => {
                headers.push(json!({"error": {"rule": rule, "text": text}}));
            }
            Ok(Section { bytes, mut header }) => {
                header.values_mut().for_each(|value| move_offsets(value, offset));
                headers.push(Value::Object(header));
                offset += bytes.len();
                pieces.push_back(Bytes::from(bytes));
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
/// the start of the answer.
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

impl Outcome {
    fn into_section(self) -> Section {
        let mut bytes = Vec::with_capacity(self.columns.len() * 16);
        let columns = &self.columns;
        let [allowed, limit, remaining, retry_after_ms, reset_after_ms] = &columns.integers;
        let mut place = |column: &mut dyn FnMut(&mut Vec<u8>) -> Type| {
            let offset = bytes.len();
            let kind = column(&mut bytes);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            json!({"type": kind.name(), "offset": offset})
        };
        let at_us = columns.at_us.iter().map(|at_us| i64::try_from(*at_us).unwrap_or(i64::MAX));
        let small = |column: &[u8], bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(column);
            Type::U8
        };
        let described = json!({
            "at_us": place(&mut |bytes| append(at_us.clone(), bytes)),
            "key": place(&mut |bytes| small(&columns.key, bytes)),
            "attempt": place(&mut |bytes| small(&columns.attempt, bytes)),
            "allowed": place(&mut |bytes| append(allowed.iter().copied(), bytes)),
            "limit": place(&mut |bytes| append(limit.iter().copied(), bytes)),
            "remaining": place(&mut |bytes| append(remaining.iter().copied(), bytes)),
            "retry_after_ms": place(&mut |bytes| append(retry_after_ms.iter().copied(), bytes)),
            "reset_after_ms": place(&mut |bytes| append(reset_after_ms.iter().copied(), bytes)),
            "rule": place(&mut |bytes| small(&columns.rule, bytes)),
        });
        let level = |level: &Vec<i64>| {
            let mut column = place(&mut |bytes| append(level.iter().copied(), bytes));
            column["count"] = json!(level.len());
            column
        };
        let levels: Vec<_> = self.levels.iter().map(level).collect();
        let header = json!({
            "calls": columns.len(),
            "truncated": self.truncated,
            "columns": described,
            "level": {"rules": levels},
            "summary": summary(&self.summary),
            "rule_texts": self.texts.rules,
            "policy_lines": self.texts.policy_lines,
            "command": self.texts.command,
        });
        let Value::Object(header) = header else { return Section { bytes, header: Map::new() } };
        Section { bytes, header }
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
        "windows": windows.collect::<Vec<_>>(),
    })
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F64 => "f64",
        }
    }

    /// Returns the narrowest type for numbers between two bounds.
    fn of(least: i64, most: i64) -> Self {
        let fits_within = |max: u32| least >= 0 && most <= i64::from(max);
        if fits_within(u8::MAX.into()) {
            Self::U8
        } else if fits_within(u16::MAX.into()) {
            Self::U16
        } else if fits_within(u32::MAX) {
            Self::U32
        } else if i32::try_from(least).is_ok() && i32::try_from(most).is_ok() {
            Self::I32
        } else {
            Self::F64
        }
    }
}

/// Appends a column and returns its type.
fn append(numbers: impl Iterator<Item = i64> + Clone, bytes: &mut Vec<u8>) -> Type {
    let bounds =
        numbers.clone().fold((0, 0), |(least, most), number| (number.min(least), number.max(most)));
    let kind = Type::of(bounds.0, bounds.1);
    // The bounds make every conversion below exact; a float holds integers below 2^53.
    match kind {
        Type::U8 => bytes.extend(numbers.map(|number| number as u8)),
        Type::U16 => bytes.extend(numbers.flat_map(|number| (number as u16).to_le_bytes())),
        Type::U32 => bytes.extend(numbers.flat_map(|number| (number as u32).to_le_bytes())),
        Type::I32 => bytes.extend(numbers.flat_map(|number| (number as i32).to_le_bytes())),
        Type::F64 => bytes.extend(numbers.flat_map(|number| (number as f64).to_le_bytes())),
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_has_the_narrowest_type_that_holds_its_values() {
        let table: [(&[i64], Type, &[u8]); 12] = [
            (&[], Type::U8, &[]),
            (&[0, 255], Type::U8, &[0, 255]),
            (&[256, 1], Type::U16, &[0, 1, 1, 0]),
            (&[65_535], Type::U16, &[255, 255]),
            (&[65_536], Type::U32, &[0, 0, 1, 0]),
            (&[4_294_967_295], Type::U32, &[255; 4]),
            (&[4_294_967_296], Type::F64, &[0, 0, 0, 0, 0, 0, 0xf0, 0x41]),
            (&[-1], Type::I32, &[255; 4]),
            (&[-1, 2_147_483_647], Type::I32, &[255, 255, 255, 255, 255, 255, 255, 127]),
            (&[-2_147_483_648], Type::I32, &[0, 0, 0, 128]),
            (&[-2_147_483_649], Type::F64, &[0, 0, 0x20, 0, 0, 0, 0xe0, 0xc1]),
            // The largest time of a reply: 2^53 - 1 is exact.
            (&[(1 << 53) - 1], Type::F64, &[255, 255, 255, 255, 255, 255, 0x3f, 0x43]),
        ];
        for (numbers, kind, expected) in table {
            let mut bytes = vec![];
            assert_eq!(append(numbers.iter().copied(), &mut bytes), kind, "{numbers:?}");
            assert_eq!(bytes, expected, "{numbers:?}");
        }
    }

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
