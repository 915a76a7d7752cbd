//! Counts the instructions of a call: `make bench-instructions`. Unlike times, these counts are
//! repeatable.
//!
//! Callgrind counts the same work twice, the second time with more repetitions. A figure is the
//! difference divided by the additional repetitions. The steps of the engine run in this program.
//! Whole commands run in a real server, where the module's instructions are separated from those of
//! the server's functions. The program fails if a figure of the module is more than 3 % above
//! `benches/instructions/baseline.tsv`.
//!
//! The make target sets `RL_MODULE`, the module with its symbols, and `SERVER`, the server.
//! `UPDATE=1` writes the baseline.

#[path = "../pure/cases.rs"]
mod cases;
mod command;
mod count;
mod judge;

use cases::Step;
use judge::{Figure, Remark};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// The number of repetitions of a step in the first run; the second run makes twice as many.
const TIMES: u64 = 1_000;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().collect();
    if let [_, work, name, step, times] = words.as_slice()
        && work == "work"
    {
        return do_work(name, step, times.parse().expect("a number"));
    }
    let all = env::var_os("ONLY").is_none_or(|only| only.is_empty());
    let mut figures = if all { steps() } else { Vec::new() };
    let commands = command::count();
    figures.extend(commands.figures);
    println!("The server's functions in an allowed GCRA call, including their callees:\n");
    for (name, instructions) in commands.server_functions.iter().filter(|(_, count)| *count > 0) {
        println!("{instructions:>6}  {name}");
    }
    println!();

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions/baseline.tsv");
    let compiler = compiler();
    if env::var("UPDATE").is_ok_and(|update| update == "1") {
        fs::write(&path, judge::write(&compiler, &figures)).expect("the baseline can be written");
        println!("The baseline has {} figures now: {}", figures.len(), path.display());
        return ExitCode::SUCCESS;
    }
    let (baseline_compiler, baseline) = judge::read(&fs::read_to_string(&path).unwrap_or_default());
    let remarks = judge::compare(&baseline, &figures);
    print(&figures, &baseline, &remarks);
    if baseline_compiler != compiler {
        println!("\nThe baseline was recorded with {baseline_compiler}, this is {compiler}.");
    }
    if remarks.iter().any(|(_, remark)| remark.is_failure()) {
        println!("\nFigures differ from the baseline. To accept: make bench-instructions UPDATE=1");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Repeats one step of one case. This is the work of the program when it runs under callgrind.
fn do_work(name: &str, step: &str, times: u64) -> ExitCode {
    let case = cases::all().into_iter().find(|case| case.name == name).expect("a case");
    let step = Step::ALL.into_iter().find(|found| found.name() == step).expect("a step");
    case.repeat(step, times);
    ExitCode::SUCCESS
}

/// Counts the instructions of each step of the engine.
fn steps() -> Vec<Figure> {
    let program = env::current_exe().expect("this program");
    let mut figures = Vec::new();
    for case in cases::all() {
        eprintln!("counting {} ...", case.name);
        for step in Step::ALL.into_iter().filter(|step| case.repeat(*step, 0)) {
            let [once, more] = [TIMES, 2 * TIMES].map(|times| {
                let mut command = Command::new(&program);
                command.args(["work", &case.name, step.name(), &times.to_string()]);
                count::of_program(command)
            });
            let ours = (more - once) / TIMES;
            figures.push(Figure {
                name: format!("{}/{}", case.name, step.name()),
                ours,
                theirs: 0,
            });
        }
    }
    figures
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output().expect("rustc can be run");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn print(figures: &[Figure], baseline: &[Figure], remarks: &[(String, Remark)]) {
    let before = |name: &str| baseline.iter().find(|figure| figure.name == name);
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    println!("{:width$}  {:>8}  {:>8}  {:>8}", "count per call", "module", "baseline", "server");
    for figure in figures {
        let was = before(&figure.name).map_or("-".to_owned(), |was| was.ours.to_string());
        let theirs = if figure.theirs == 0 { String::new() } else { figure.theirs.to_string() };
        let remark = remarks.iter().find(|(name, _)| *name == figure.name);
        let remark = remark.map_or(String::new(), |(_, remark)| remark.to_string());
        println!("{:width$}  {:>8}  {was:>8}  {theirs:>8}  {remark}", figure.name, figure.ours);
    }
    for (name, remark) in remarks.iter().filter(|(_, remark)| *remark == Remark::Missing) {
        println!("{name:width$}  {remark}");
    }
}
