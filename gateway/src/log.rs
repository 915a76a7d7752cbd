//! Structured logs: one line per event on standard error, as JSON or as text.
//!
//! A thread writes the lines, because standard error may be full or unread, which must not stop
//! the gateway. Lines beyond the bounds are dropped, and a later line has their number. Every text
//! is escaped: a line has printable ASCII characters only.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use log::{LevelFilter, Metadata, Record};

/// The most lines in a second of an event that a caller can cause.
const LINES_PER_SECOND: u32 = 10;
/// The most characters of a value.
const VALUE_CHARS_MAX: usize = 1_000;
/// The lines that wait to be written.
const WAITING_MAX: usize = 1_024;
/// The beginning of the targets of the client's lines.
const CLIENT: &str = "redis_throttle_client";
/// The time to write the last lines.
const FLUSHED_WITHIN: Duration = Duration::from_secs(1);

static LOG: OnceLock<Log> = OnceLock::new();

/// The form of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An object of JSON per line.
    Json,
    /// The time, the level, the event, and `name=value`.
    Text,
}

impl Format {
    /// Returns text for a terminal, and JSON for anything else.
    #[must_use]
    pub fn of_stderr() -> Self {
        if stderr().is_terminal() { Self::Text } else { Self::Json }
    }
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A normal change of state.
    Info,
    /// Something failed that does not change a decision.
    Warning,
    /// Limits are not enforced as configured.
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// An event with its fields.
#[derive(Debug)]
#[must_use]
pub struct Event {
    level: Level,
    name: &'static str,
    fields: Vec<(&'static str, String)>,
}

/// Returns an event without fields.
pub fn event(level: Level, name: &'static str) -> Event {
    Event { level, name, fields: Vec::new() }
}

impl Event {
    /// Adds a field.
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.fields.push((name, value.to_string().chars().take(VALUE_CHARS_MAX).collect()));
        self
    }

    /// Adds the trace of a request by its header field `traceparent`, if that is valid.
    pub fn traced(self, traceparent: Option<&str>) -> Self {
        match traceparent.filter(|text| is_traceparent(text)) {
            Some(text) => self.with("traceparent", text),
            None => self,
        }
    }

    /// Writes the line.
    pub fn write(self) {
        log().write(&self);
    }

    /// Writes the line, unless this second has enough lines of the event: for events that callers
    /// can cause.
    pub fn write_bounded(self) {
        if log().has_room(self.name, Instant::now()) {
            log().write(&self);
        } else {
            log().dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn line(&self, format: Format, dropped: u64) -> String {
        let time = format!("{:.3}", Timestamp::now());
        let mut line = match format {
            Format::Json => {
                let (level, event) = (self.level.as_str(), self.name);
                format!(r#"{{"time":"{time}","level":"{level}","event":"{event}""#)
            }
            Format::Text => format!("{time} {} {}", self.level.as_str(), self.name),
        };
        let dropped = (dropped > 0).then(|| ("dropped", dropped.to_string()));
        for (name, value) in self.fields.iter().chain(&dropped) {
            // Writing to a string does not fail.
            let _ = match format {
                Format::Json => write!(line, r#","{name}":"#),
                Format::Text => write!(line, " {name}="),
            };
            push(&mut line, value);
        }
        line + if format == Format::Json { "}\n" } else { "\n" }
    }
}

/// Appends a text in quotes, escaped as in JSON.
fn push(line: &mut String, text: &str) {
    line.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => line.extend(['\\', char]),
            ' '..='~' => line.push(char),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let _ = write!(line, "\\u{unit:04x}");
                }
            }
        }
    }
    line.push('"');
}

/// Returns true for a valid field `traceparent` of W3C Trace Context, of the length of version 00.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { return false };
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, length| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    is_hex(version, 2) && version != "ff" && is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2)
}

/// Sets the form of lines, and takes the warnings of the client. Call it before the first event;
/// later calls change nothing.
pub fn start(format: Format) {
    let _ = LOG.set(Log::new(format));
    if ::log::set_logger(&OfClient).is_ok() {
        ::log::set_max_level(LevelFilter::Warn);
    }
}

/// Writes the warnings and errors of the client as events. Those of other libraries are left out,
/// because they may hold values of a request.
struct OfClient;

impl ::log::Log for OfClient {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.level() <= ::log::Level::Warn && about.target().starts_with(CLIENT)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            event(Level::Warning, "client_warning").with("message", record.args()).write_bounded();
        }
    }

    fn flush(&self) {}
}

/// Waits, for at most a second, until the lines are written.
pub fn flush() {
    let (done, written) = sync_channel(1);
    if log().waiting.try_send(Message::Flush(done)).is_ok() {
        let _ = written.recv_timeout(FLUSHED_WITHIN);
    }
}

fn log() -> &'static Log {
    LOG.get_or_init(|| Log::new(Format::of_stderr()))
}

/// A message to the thread.
enum Message {
    Line(String),
    /// Acknowledged when the lines before it are written.
    Flush(SyncSender<()>),
}

struct Log {
    format: Format,
    waiting: SyncSender<Message>,
    /// The begin of the second, and its lines, of each bounded event.
    seconds: Mutex<BTreeMap<&'static str, (Instant, u32)>>,
    /// The lines that were not written since the last one.
    dropped: AtomicU64,
}

impl Log {
    fn new(format: Format) -> Self {
        let (waiting, lines) = sync_channel(WAITING_MAX);
        // Without a thread, all lines are dropped.
        let _ = thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&lines));
        Self { format, waiting, seconds: Mutex::default(), dropped: AtomicU64::new(0) }
    }

    fn write(&self, event: &Event) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let line = event.line(self.format, dropped);
        if self.waiting.try_send(Message::Line(line)).is_err() {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }

    fn has_room(&self, name: &'static str, now: Instant) -> bool {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, lines) = seconds.entry(name).or_insert((now, 0));
        if now.saturating_duration_since(*began) >= Duration::from_secs(1) {
            (*began, *lines) = (now, 0);
        }
        *lines = lines.saturating_add(1);
        *lines <= LINES_PER_SECOND
    }
}

/// Writes lines until the program ends.
fn write_all(lines: &Receiver<Message>) {
    for message in lines {
        match message {
            Message::Line(line) => {
                let _ = stderr().write_all(line.as_bytes());
            }
            Message::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> serde_json::Map<String, serde_json::Value> {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn every_character_of_a_value_is_read_back_from_a_line_of_ascii() {
        let text: String = ('\0'..'\u{300}').chain(['\u{2028}', '\u{202e}', '😀']).collect();
        let event = event(Level::Error, "call_refused").with("message", &text);
        let line = event.line(Format::Json, 0);
        assert!(line.trim_end_matches('\n').bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        let fields = fields(&line);
        assert_eq!(fields["message"], text);
        assert_eq!((&fields["level"], &fields["event"]), (&"error".into(), &"call_refused".into()));
        let time: Timestamp = fields["time"].as_str().unwrap().parse().unwrap();
        assert!(Timestamp::now().duration_since(time).as_secs() < 60);
        assert!(!fields.contains_key("dropped"));
    }

    #[test]
    fn text_has_the_same_fields() {
        let event = event(Level::Warning, "server_away").with("message", "a \"b\"\n");
        let line = event.line(Format::Text, 3);
        let (_, rest) = line.split_once(' ').unwrap();
        let expected = "warning server_away message=\"a \\\"b\\\"\\u000a\" dropped=\"3\"\n";
        assert_eq!(rest, expected);
    }

    #[test]
    fn values_are_cut() {
        let event = event(Level::Info, "x").with("message", "é".repeat(70_000));
        let line = event.line(Format::Text, 0);
        assert_eq!(line.matches("\\u00e9").count(), VALUE_CHARS_MAX);
    }

    #[test]
    fn only_a_valid_traceparent_is_logged() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(is_traceparent(valid));
        let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let long = format!("{valid}-00");
        let upper = valid.replace('a', "A");
        let version = valid.replacen("00", "ff", 1);
        let control = valid.replacen('0', "\n", 1);
        for text in [&valid[1..], zeros, &long, &upper, &version, &control, "", "---"] {
            assert!(!is_traceparent(text), "{text}");
        }
        assert!(event(Level::Info, "x").traced(Some(&long)).fields.is_empty());
    }

    #[test]
    fn only_warnings_and_errors_of_the_client_are_taken() {
        use ::log::{Level::*, Log as _};
        let table = [
            (Error, "redis_throttle_client", true),
            (Warn, "redis_throttle_client::calls::error_log", true),
            (Info, "redis_throttle_client", false),
            (Warn, "rustls", false),
        ];
        for (level, target, is_taken) in table {
            let about = Metadata::builder().level(level).target(target).build();
            assert_eq!(OfClient.enabled(&about), is_taken, "{level} {target}");
        }
    }

    #[test]
    fn second_has_a_bounded_number_of_lines_of_each_event() {
        let log = Log::new(Format::Json);
        let now = Instant::now();
        let lines = |name, now| (0..100).filter(|_| log.has_room(name, now)).count();
        assert_eq!((lines("a", now), lines("b", now)), (10, 10));
        assert_eq!(lines("a", now + Duration::from_millis(999)), 0);
        assert_eq!(lines("a", now + Duration::from_secs(1)), 10);
    }
}
