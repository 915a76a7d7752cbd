//! Runs under callgrind, and what it wrote.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// All instructions of a program.
///
/// # Panics
///
/// When it fails: nothing was counted.
pub fn of_program(program: Command) -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let status = under_callgrind(&out, &program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("valgrind can be run");
    assert!(status.success(), "{program:?} fails under callgrind");
    self_costs(&out).iter().map(|(_, count)| count).sum()
}

/// The same program under callgrind, which writes to `out`.
pub fn under_callgrind(out: &Path, program: &Command) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--trace-children=yes"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program.get_program())
        .args(program.get_args());
    command
}

/// What callgrind counted itself in each object file, by its path: the lines below an `ob=` that are
/// numbers, but for those below a `calls=`, which tell what was spent further down.
pub fn self_costs(out: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(out).expect("callgrind has written");
    let mut names: Vec<(String, String)> = Vec::new();
    let mut costs: Vec<(String, u64)> = Vec::new();
    let mut object = String::new();
    let mut is_call = false;
    for line in text.lines() {
        // `ob=(7) /usr/bin/server` names an object, and from then on `ob=(7)` is enough.
        if let Some(named) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            let (id, path) = named.split_once(' ').unwrap_or((named, ""));
            if !path.is_empty() {
                names.push((id.to_owned(), path.to_owned()));
            }
            if line.starts_with("ob=") {
                let found = names.iter().find(|(found, _)| found == id);
                object = found.map_or_else(|| id.to_owned(), |(_, path)| path.clone());
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
            if !std::mem::take(&mut is_call) {
                match costs.iter_mut().find(|(found, _)| *found == object) {
                    Some((_, sum)) => *sum += cost,
                    None => costs.push((object.clone(), cost)),
                }
            }
        }
    }
    costs
}
