//! Runs programs under callgrind and reads its output.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Counts all instructions of a program.
///
/// # Panics
///
/// If the program fails, because its count would be meaningless.
pub fn of_program(program: Command) -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let status = under_callgrind(&out, &program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("valgrind can be run");
    assert!(status.success(), "{program:?} fails under callgrind");
    read(&out).objects.values().sum()
}

/// Returns a command that runs `program` under callgrind, which writes to `out`.
pub fn under_callgrind(out: &Path, program: &Command) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--trace-children=yes"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program.get_program())
        .args(program.get_args());
    command
}

/// The counts that callgrind reports.
#[derive(Debug, Default)]
pub struct Costs {
    /// The instructions inside each object file, by the file's path. Functions that the file calls
    /// in other files are not included.
    pub objects: HashMap<String, u64>,
    /// The instructions of calls from one object file into another, including everything that the
    /// called function calls, by the path of the calling file and the name of the called function.
    pub calls_out: HashMap<(String, String), u64>,
}

/// The names that callgrind abbreviates to numbers: `ob=(7) /usr/bin/server` names an object, and
/// from then on `ob=(7)` stands for it.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn learn(&mut self, named: &str) -> String {
        match named.split_once(' ') {
            Some((id, name)) => {
                self.0.insert(id.to_owned(), name.to_owned());
                name.to_owned()
            }
            None => self.0.get(named).cloned().unwrap_or_else(|| named.to_owned()),
        }
    }
}

/// Reads the output of callgrind. A cost line is a position and a number of instructions. The
/// number counts for the object file that the last `ob=` line names. After a `calls=` line, it is
/// instead the cost of the called function with everything that it calls.
pub fn read(out: &Path) -> Costs {
    let text = fs::read_to_string(out).expect("callgrind has written");
    let (mut objects, mut functions) = (Names::default(), Names::default());
    let mut costs = Costs::default();
    let (mut object, mut callee) = (String::new(), String::new());
    let mut callee_object: Option<String> = None;
    let mut is_call = false;
    for line in text.lines() {
        if let Some(named) = line.strip_prefix("ob=") {
            object = objects.learn(named);
        } else if let Some(named) = line.strip_prefix("cob=") {
            callee_object = Some(objects.learn(named));
        } else if let Some(named) = line.strip_prefix("fn=") {
            functions.learn(named);
        } else if let Some(named) = line.strip_prefix("cfn=") {
            callee = functions.learn(named);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost: u64 = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
            if !std::mem::take(&mut is_call) {
                *costs.objects.entry(object.clone()).or_default() += cost;
            } else if callee_object.take().is_some_and(|other| other != object) {
                *costs.calls_out.entry((object.clone(), callee.clone())).or_default() += cost;
            }
        }
    }
    costs
}
