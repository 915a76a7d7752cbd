//! The time and memory of a replay: a log of ten million lines with a million keys.
//!
//! Prints the seconds that pass and those that the processor spends, which reveal a busy machine.
//!
//! ```text
//! cargo bench -p redis-throttle-lab --bench replay [-- LINES]
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The unit of processor time in `/proc`, on every usual Linux.
const TICKS_PER_SECOND: f64 = 100.0;

const LINES: u64 = 10_000_000;
const KEYS: u64 = 1_000_000;
/// The length of the log: four hours.
const SECONDS: u64 = 14_400;
/// 2026-10-10 00:00:00 UTC.
const DAY: &str = "10/Oct/2026";

const TWO: [&str; 2] = ["GCRA 20 10 1s", "FIXED 600 60"];
const FOUR: [&str; 4] =
    ["GCRA 20 10 1s", "FIXED 600 60", "SLIDING 600 60", "TOKENBUCKET 100 10 1s"];

fn main() {
    // cargo passes arguments of its own, such as `--bench`.
    let lines = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(LINES);
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("access.log");
    write_log(&plain, lines).expect("a log");
    let len = plain.metadata().expect("a log").len();
    println!("{lines} lines, {len} bytes, keys of which a fifth of the lines takes each in turn");
    let gzip = folder.path().join("access.log.gz");
    let status = Command::new("gzip").args(["-1", "-k"]).arg(&plain).status();
    let has_gzip = status.is_ok_and(|status| status.success());
    println!("{:<20} {:>8} {:>8} {:>6}  most denied key", "replay", "seconds", "of CPU", "MB");
    measure("2 rules", &plain, &rules(&TWO));
    measure("4 rules", &plain, &rules(&FOUR));
    measure("4 rules, RL.ALL", &plain, &[rules(&FOUR), vec!["--all".to_owned()]].concat());
    measure("--suggest", &plain, &["--suggest".to_owned()]);
    if has_gzip {
        measure("2 rules, gzip", &gzip, &rules(&TWO));
    }
}

fn rules(rules: &[&str]) -> Vec<String> {
    rules.iter().flat_map(|rule| ["--rule".to_owned(), (*rule).to_owned()]).collect()
}

/// Writes a log in the combined format. A fifth of the lines takes each key in turn; the others
/// take a key with a probability that falls with its number, as Zipf's law has it.
fn write_log(path: &Path, lines: u64) -> std::io::Result<()> {
    let mut log = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut state = 1_u64;
    for line in 0..lines {
        let second = line * SECONDS / lines;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        // A linear congruential generator: the same log in each run.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = if line % 5 == 0 {
            line / 5 % KEYS
        } else {
            let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
            (KEYS as f64).powf(uniform) as u64 % KEYS
        };
        // Keys that follow each other are not next to each other in memory.
        let [_, a, b, c] = ((key * 7_919) as u32 % 0x0100_0000).to_be_bytes();
        let path = state >> 60;
        writeln!(
            log,
            "10.{a}.{b}.{c} - - [{DAY}:{hour:02}:{minute:02}:{second:02} +0000] \"GET \
             /api/v1/items/{path}?page=2 HTTP/1.1\" 200 5120 \"-\" \"curl/8.5.0\""
        )?;
    }
    log.flush()
}

/// Replays the log, and prints the time, the peak of memory and the most denied key.
fn measure(name: &str, log: &Path, arguments: &[String]) {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_redis-throttle-lab"))
        .arg("replay")
        .arg(log)
        .args(arguments)
        .arg("--json")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let output = child.stdout.take().expect("the output");
    let reader = std::thread::spawn(move || std::io::read_to_string(output).expect("a report"));
    let (peak_kb, cpu_seconds) = use_until_the_end(&mut child);
    let seconds = began.elapsed().as_secs_f64();
    let report: serde_json::Value =
        serde_json::from_str(&reader.join().expect("a report")).expect("JSON");
    let most_denied = &report["limits"][0]["most_denied"][0];
    let outcome = match most_denied["key"].as_str() {
        Some(key) => format!("{key}, {} calls denied", most_denied["denied"]),
        None => report["suggestion"]["rule"].as_str().unwrap_or("none").to_owned(),
    };
    println!("{name:<20} {seconds:>8.1} {cpu_seconds:>8.1} {:>6}  {outcome}", peak_kb / 1_024);
}

/// Waits until the child ends, and returns the most memory it had, in kB, and the seconds that the
/// processor spent on it.
fn use_until_the_end(child: &mut Child) -> (u64, f64) {
    let file = |name: &str| format!("/proc/{}/{name}", child.id());
    let (status, stat) = (file("status"), file("stat"));
    let (mut peak_kb, mut ticks) = (0, 0);
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        peak_kb = peak_kb.max(kb.unwrap_or(0));
        // The fields after the name: the 12th and 13th are the ticks of the program and the system.
        let text = std::fs::read_to_string(&stat).unwrap_or_default();
        let fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let spent = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        ticks = ticks.max(spent);
        if let Some(status) = child.try_wait().expect("the program") {
            assert!(status.success(), "{status}");
            return (peak_kb, ticks as f64 / TICKS_PER_SECOND);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
