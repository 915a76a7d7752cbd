//! The pages under `docs/bench/`: tables in Markdown, and the command lines that repeat the
//! measurements.

use crate::bars::Bars;
use crate::node::Binary;
use crate::rounds::Figures;
pub use crate::table::{TSV_HEADING, Table, thousands};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns a table with the rates, spread, CPU times and ratios of a group of contestants. The
/// first row is the reference.
pub fn rates(figures: &[Figures]) -> Table {
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
    table
}

/// Returns the remark for a table of rates with a star, or nothing.
pub fn remark(figures: &[Figures]) -> &'static str {
    let is_idle = figures.iter().any(|figures| figures.median.busy < 0.9);
    let note = "\n`*`: the server waited or shared its core: only CPU time is valid.\n";
    if is_idle { note } else { "" }
}

/// Returns a table of the bars of all servers.
pub fn bars(all: &[Bars]) -> Table {
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
    table
}

/// Returns the load average of the machine over the last minute.
pub fn load_average() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split(' ').next().unwrap_or_default().to_owned()
}

/// Returns a table of the machine, the server and the module. `load_before` is the load average
/// before the first measurement; the one after it includes the measurements themselves.
pub fn environment(binaries: &[Binary], rounds: usize, load_before: &str) -> Table {
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
    row("load generator", output(Path::new("redis-benchmark"), "--version"));
    row(
        "CPU",
        format!("{cpu}, {} cores", std::thread::available_parallelism().map_or(0, usize::from)),
    );
    row("kernel", output(Path::new("uname"), "-r"));
    row("rounds", rounds.to_string());
    row("load average before", load_before.to_owned());
    row("load average after", load_average());
    table
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
