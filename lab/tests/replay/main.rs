//! Replays of generated logs by the program as a user starts it.

mod formats;
mod inputs;
mod limits;
mod model;
mod outputs;
mod suggestions;

use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_redis-throttle-lab");

/// 2026-10-10 00:00:00 UTC, in seconds since the Unix epoch.
const DAY_S: u64 = 1_791_590_400;

/// The files of one test.
struct Logs {
    folder: TempDir,
}

/// The end of a replay.
struct Replayed {
    status: Option<i32>,
    output: String,
    errors: String,
}

impl Logs {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    /// Writes a file, and returns its path.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file");
        path.to_str().expect("a path in UTF-8").to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Runs a replay with this standard input.
fn replay_of(input: &[u8], arguments: &[&str]) -> Replayed {
    let mut child = Command::new(PROGRAM)
        .arg("replay")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("an input");
    let input = input.to_vec();
    // The program may end before it reads everything.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("an end");
    let _ = writer.join();
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Replayed {
        status: output.status.code(),
        output: text(output.stdout),
        errors: text(output.stderr),
    }
}

fn replay(arguments: &[&str]) -> Replayed {
    replay_of(b"", arguments)
}

/// Runs a replay that succeeds, and returns its report.
fn report(arguments: &[&str]) -> Value {
    report_of(b"", arguments)
}

fn report_of(input: &[u8], arguments: &[&str]) -> Value {
    let replayed = replay_of(input, &[arguments, &["--json"]].concat());
    assert_eq!((replayed.status, replayed.errors.as_str()), (Some(0), ""), "{arguments:?}");
    serde_json::from_str(&replayed.output).expect("a report")
}

/// Runs a replay that fails with this status, and returns the text of the error.
fn failure(status: i32, arguments: &[&str]) -> String {
    let replayed = replay(arguments);
    assert_eq!((replayed.status, replayed.output.as_str()), (Some(status), ""), "{arguments:?}");
    let text = replayed.errors.strip_prefix("redis-throttle-lab: ").expect("a name");
    text.trim_end().to_owned()
}

/// Returns a line of the combined format.
fn combined(second: u64, address: &str, status: u16) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!(
        "{address} - - [10/Oct/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET /api?x=1 \
         HTTP/1.1\" {status} 100 \"-\" \"curl/8.5.0\"\n"
    )
}

/// Returns the same bytes as `gzip` would write them.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// The keys of the log with known results, with the calls that each makes in a minute.
const KNOWN: [(&str, u64); 4] =
    [("192.0.2.1", 9), ("192.0.2.2", 10), ("192.0.2.3", 17), ("192.0.2.4", 45)];

/// Returns a log of three minutes, in each of which the keys make their calls within 50 s. Under
/// `FIXED 10 60`, every call of a key after the tenth of a minute is denied.
fn known_log() -> String {
    let mut lines = Vec::new();
    for minute in 0..3 {
        for (address, calls) in KNOWN {
            for call in 0..calls {
                lines.push((minute * 120 + call, combined(minute * 120 + call, address, 200)));
            }
        }
    }
    lines.sort_by_key(|(second, _)| *second);
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Returns the path of a file as an argument.
fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
