//! A log of decisions as lines of JSON.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::rules::clock;
use crate::rules::event::{Field, fields_of};
use crate::{DecisionEvent, EventKind};

/// The options of [`json_log`].
#[derive(Debug, Clone)]
#[must_use]
pub struct JsonLogOptions {
    audit: HashSet<String>,
    lines_per_second: u32,
}

impl Default for JsonLogOptions {
    fn default() -> Self {
        Self { audit: HashSet::new(), lines_per_second: 100 }
    }
}

impl JsonLogOptions {
    /// Names rules of which every event is logged, without a bound, also charges, refunds and
    /// peeks. Default: none.
    pub fn audit(mut self, rules: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.audit = rules.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the maximum number of other lines in a second. Default: 100. 0 is the same as 1.
    pub fn lines_per_second(mut self, lines: u32) -> Self {
        self.lines_per_second = lines.max(1);
        self
    }
}

/// Returns a hook for [`Options::on_decision`](crate::Options::on_decision) that writes one line of
/// JSON for each decision that matters: denials, degraded decisions and rejected calls.
///
/// Lines above the bound of a second, and those that cannot be written, are dropped; the next line
/// has their number. No line has a key or a subject. The task of the call writes its line, so the
/// stream should not block.
pub fn json_log(
    stream: impl Write + Send + 'static,
    options: JsonLogOptions,
) -> impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static {
    let log = Mutex::new(Log { stream, began: clock::now(), lines: 0, dropped: 0 });
    move |event| {
        let is_audited = options.names_a_rule_of(event);
        if is_audited || matters(event) {
            let most = (!is_audited).then_some(options.lines_per_second);
            log.lock().unwrap_or_else(PoisonError::into_inner).write(event, most);
        }
    }
}

impl JsonLogOptions {
    fn names_a_rule_of(&self, event: &DecisionEvent<'_>) -> bool {
        let mut rows = event.decision.into_iter().flat_map(|decision| &decision.rows);
        self.audit.contains(event.rule.name()) || rows.any(|row| self.audit.contains(&*row.rule))
    }
}

fn matters(event: &DecisionEvent<'_>) -> bool {
    let is_counted = matches!(event.kind, EventKind::Check | EventKind::Lease);
    event.decision.is_none_or(|decision| is_counted && (decision.degraded || !decision.allowed))
}

struct Log<W> {
    stream: W,
    began: Instant,
    lines: u32,
    dropped: u64,
}

impl<W: Write> Log<W> {
    /// Writes a line, unless `most` lines were written in this second.
    fn write(&mut self, event: &DecisionEvent<'_>, most: Option<u32>) {
        if !most.is_none_or(|most| self.has_room(most)) {
            self.dropped += 1;
            return;
        }
        let line = line_of(event, self.dropped);
        let written = self.stream.write_all(line.as_bytes()).and_then(|()| self.stream.flush());
        self.dropped = if written.is_ok() { 0 } else { self.dropped + 1 };
    }

    fn has_room(&mut self, most: u32) -> bool {
        let now = clock::now();
        if now - self.began >= Duration::from_secs(1) {
            (self.began, self.lines) = (now, 0);
        }
        self.lines = self.lines.saturating_add(1);
        self.lines <= most
    }
}

fn line_of(event: &DecisionEvent<'_>, dropped: u64) -> String {
    let mut line = format!("{{\"time_ms\":{}", clock::epoch_ms());
    for (name, field) in fields_of(event) {
        let _ = write!(line, ",\"{name}\":");
        push(&mut line, &field);
    }
    let latency_us = event.latency.as_micros();
    let _ = write!(line, ",\"latency_ms\":{}.{:03}", latency_us / 1000, latency_us % 1000);
    if dropped > 0 {
        let _ = write!(line, ",\"dropped\":{dropped}");
    }
    line + "}\n"
}

fn push(line: &mut String, field: &Field<'_>) {
    match field {
        Field::Bool(value) => line.push_str(if *value { "true" } else { "false" }),
        Field::Number(value) => line.push_str(&value.to_string()),
        Field::Text(text) => push_text(line, text),
        Field::Texts(texts) => {
            for (at, text) in texts.iter().enumerate() {
                line.push(if at == 0 { '[' } else { ',' });
                push_text(line, text);
            }
            line.push(']');
        }
    }
}

fn push_text(line: &mut String, text: &str) {
    line.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => line.extend(['\\', char]),
            '\0'..='\x1f' => {
                let _ = write!(line, "\\u{:04x}", u32::from(char));
            }
            _ => line.push(char),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_of_a_text_is_read_back() {
        let text: String = ('\0'..'\u{300}').chain(['\u{2028}', '😀']).collect();
        let mut line = String::new();
        push(&mut line, &Field::Texts(vec![&text, ""]));
        assert_eq!(serde_json::from_str::<Vec<String>>(&line).unwrap(), [&*text, ""]);
        assert!(!line.contains(['\n', '\r']));
    }
}
