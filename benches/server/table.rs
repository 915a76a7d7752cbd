//! Tables, in Markdown for the pages and as tab-separated values for programs.

use std::fmt::Write;

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

    /// Returns one line per figure: the section, the row, the column and the value, separated by
    /// tabs. Numbers have no commas. A bar and its verdict have the name of the figure before them.
    pub fn tsv(&self, section: &str) -> String {
        let mut names: Vec<String> = Vec::new();
        let mut figure = "";
        for column in &self.heading {
            names.push(match column.as_str() {
                "" => format!("{figure}: verdict"),
                "bar" => format!("{figure}: bar"),
                _ => column.clone(),
            });
            figure = if matches!(column.as_str(), "" | "bar") { figure } else { column };
        }
        let mut lines = String::new();
        for row in &self.rows {
            for (column, cell) in names.iter().zip(row).skip(1) {
                let digits = cell.replace(',', "");
                let value = if digits.parse::<f64>().is_ok() { &digits } else { cell };
                writeln!(lines, "{section}\t{}\t{column}\t{value}", row[0]).unwrap();
            }
        }
        lines
    }
}

/// The first line of a file of tab-separated values.
pub const TSV_HEADING: &str = "table\trow\tcolumn\tvalue\n";

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
