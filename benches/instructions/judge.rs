//! The verdict: a comparison of the counted instructions with those of the baseline.

use std::fmt;

/// The maximum growth of a figure, in percent.
const TOLERANCE_PERCENT: u64 = 3;

/// The instructions of one call or one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    pub name: String,
    /// Instructions inside the module, which are compared with the baseline.
    pub ours: u64,
    /// Instructions of the server's functions that the module calls, which are only reported.
    pub theirs: u64,
}

/// The difference of a figure from the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The figure has grown by this percentage.
    Grown(u64),
    /// The figure has shrunk by this percentage, so the baseline should be updated.
    Shrunk(u64),
    /// The figure is not in the baseline.
    New,
    /// The figure is in the baseline, but is no longer counted.
    Missing,
}

impl Remark {
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Shrunk(_))
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grown(percent) => write!(out, "GREW by {percent} %"),
            Self::Shrunk(percent) => write!(out, "shrank by {percent} %: record it with UPDATE=1"),
            Self::New => write!(out, "NOT in the baseline"),
            Self::Missing => write!(out, "in the baseline, but NOT counted"),
        }
    }
}

/// Returns the figures that differ from the baseline by more than the tolerance, each with its
/// remark.
pub fn compare(baseline: &[Figure], figures: &[Figure]) -> Vec<(String, Remark)> {
    let find = |list: &[Figure], name: &str| list.iter().find(|found| found.name == name).cloned();
    let of_counted = figures.iter().filter_map(|figure| {
        let remark = match find(baseline, &figure.name) {
            None => Some(Remark::New),
            Some(before) => change(before.ours, figure.ours),
        };
        remark.map(|remark| (figure.name.clone(), remark))
    });
    let gone = baseline.iter().filter(|before| find(figures, &before.name).is_none());
    of_counted.chain(gone.map(|before| (before.name.clone(), Remark::Missing))).collect()
}

fn change(before: u64, now: u64) -> Option<Remark> {
    let allowed = before * TOLERANCE_PERCENT;
    let percent = |difference: u64| (difference * 100).div_ceil(before.max(1));
    if now.saturating_sub(before) * 100 > allowed {
        Some(Remark::Grown(percent(now - before)))
    } else if before.saturating_sub(now) * 100 > allowed {
        Some(Remark::Shrunk(percent(before - now)))
    } else {
        None
    }
}

/// Formats the baseline: the compiler, then a line for each figure.
pub fn write(compiler: &str, figures: &[Figure]) -> String {
    let lines =
        figures.iter().map(|Figure { name, ours, theirs }| format!("{name}\t{ours}\t{theirs}\n"));
    format!("# {compiler}\n{}", lines.collect::<String>())
}

/// Reads the compiler and the figures from a text of [`write`]. An invalid line is skipped,
/// and its figure is then missing.
pub fn read(text: &str) -> (String, Vec<Figure>) {
    let compiler = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    let figures = text.lines().filter_map(|line| {
        let mut cells = line.split('\t');
        let name = cells.next()?.to_owned();
        let mut number = || cells.next()?.parse().ok();
        Some(Figure { name, ours: number()?, theirs: number()? })
    });
    (compiler.to_owned(), figures.collect())
}
