//! The pages under `docs/bench/`: tables in Markdown, and the command lines that repeat the
//! measurements.

use crate::bars::Bars;
use crate::node::Binary;
use crate::rounds::Figures;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A table with a heading row. The first column is text, the others are numbers.
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heading: &[&str]) -> Self {
        let heading = heading.iter().map(|&name| name.to_owned()).collect();
        Self { heading, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Returns the table in Markdown, aligned so that it can also be read as plain text.
    pub fn markdown(&self) -> String {
        let all = || [&self.heading].into_iter().chain(&self.rows);
        let columns = self.heading.len();
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |cells: &[String]| {
            let mut line = String::from("|");
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(line, " {cell:width$} |").unwrap(),
                    _ => write!(line, " {cell:>width$} |").unwrap(),
                }
            }
            line + "\n"
        };
        let rule: Vec<String> = (0..columns)
            .map(|column| match column {
                0 => "-".repeat(widths[0]),
                _ => "-".repeat(widths[column].max(2) - 1) + ":",
            })
            .collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.heading) + &line(&rule) + &rows
    }
}

/// Formats a number without decimals and with commas: `1234567.8` becomes `1,234,568`.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns a table with the rates, spread, CPU times and ratios of a group of contestants. The
/// first row is the reference.
pub fn rates(figures: &[Figures]) -> String {
    let mut table = Table::new(&[
        "contestant",
        "calls/s",
        "min",
        "max",
        "ratio",
        "CPU us",
        "CPU ratio",
        "usec_per_call",
        "busy",
    ]);
    for Figures { name, median, spread, ratio, cpu_ratio, .. } in figures {
        // The star marks a server that was often idle. Its CPU time is valid, but its calls per
        // second show the speed of the load generator.
        let idle = if median.busy < 0.9 { " *" } else { "" };
        table.row(vec![
            name.clone(),
            thousands(median.calls_per_s),
            thousands(spread.0),
            thousands(spread.1),
            format!("{ratio:.2}"),
            format!("{:.2}", median.cpu_us),
            format!("{cpu_ratio:.2}"),
            format!("{:.2}", median.usec_per_call),
            format!("{:.2}{idle}", median.busy),
        ]);
    }
    let note = "\n`*`: the server waited or shared its core: only CPU time is valid.\n";
    let is_idle = figures.iter().any(|figures| figures.median.busy < 0.9);
    table.markdown() + if is_idle { note } else { "" }
}

/// Returns a table of the bars of all servers.
pub fn bars(all: &[Bars]) -> String {
    let mut heading = vec!["figure"];
    for bars in all {
        heading.extend([bars.server.as_str(), "bar", ""]);
    }
    let mut table = Table::new(&heading);
    for (index, row) in all[0].rows.iter().enumerate() {
        let mut cells = vec![row.figure.clone()];
        for bars in all {
            let row = &bars.rows[index];
            let sign = if row.is_most { "<=" } else { ">=" };
            let verdict = match row.bar {
                None => "",
                Some(_) if row.is_met() => "met",
                Some(_) => "MISSED",
            };
            cells.push(format!("{:.2}", row.value));
            cells.push(row.bar.map_or("-".into(), |bar| format!("{sign} {bar:.2}")));
            cells.push(verdict.to_owned());
        }
        table.row(cells);
    }
    table.markdown()
}

/// Returns a table of the machine, the server and the module.
pub fn environment(binaries: &[Binary], rounds: usize) -> String {
    let output = |program: &Path, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        output.map_or_else(
            |_| "unknown".into(),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
    };
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    let mut table = Table::new(&["what", "which"]);
    let mut row = |what: &str, which: String| table.row(vec![what.into(), which]);
    row("date", output(Path::new("date"), "+%Y-%m-%d"));
    row("module", format!("redis-throttle {}", env!("CARGO_PKG_VERSION")));
    for binary in binaries {
        let version = output(&binary.path, "--version");
        let version = version.split(" sha=").next().unwrap_or_default().to_owned();
        row(&binary.name, version);
    }
    row("load", output(Path::new("redis-benchmark"), "--version"));
    row(
        "CPU",
        format!("{cpu}, {} cores", std::thread::available_parallelism().map_or(0, usize::from)),
    );
    row("kernel", output(Path::new("uname"), "-r"));
    row("rounds", rounds.to_string());
    table.markdown()
}

/// Returns the command lines, without repetitions.
pub fn command_lines(lines: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for line in lines {
        if !seen.contains(&line.as_str()) {
            seen.push(line);
        }
    }
    format!("```text\n{}\n```\n", seen.join("\n"))
}
