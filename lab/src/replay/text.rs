//! The report as text for a terminal.

use super::report::{
    KeyReport, LimitReport, Report, SERVER_BYTES_A_KEY, SuggestionReport, TimelineReport,
};
use super::wording::{bytes, clock, count, grouped, length, queued, share, wait, window};
use std::fmt::Write as _;

/// The number of columns of a picture over time.
const COLUMNS: usize = 60;

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns the text of a report.
pub fn text(report: &Report) -> String {
    let mut text = head(report);
    for doubt in &report.doubts {
        text.push_str(&wrapped(&format!("\nThe figures may be wrong: {doubt}")));
    }
    if !report.notes.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        text.push_str(&wrapped(note));
    }
    if !report.limits.is_empty() {
        text.push('\n');
        text.push_str(&overview(&report.limits, !report.policies.is_empty()));
    }
    if !report.policies.is_empty() {
        text.push('\n');
        text.push_str(&policies(report));
    }
    for limit in &report.limits {
        text.push('\n');
        text.push_str(&details(limit));
    }
    if let Some(suggestion) = &report.suggestion {
        text.push('\n');
        text.push_str(&suggested(suggestion, report));
    }
    if !report.limits.is_empty() {
        text.push_str(&wrapped(&format!("\n{}", memory())));
    }
    if let Some(link) = &report.lab_link {
        text.push('\n');
        text.push_str(&wrapped(&format!(
            "On the page of the lab, with the log's rate from {} to {} UTC for {} of its {}, \
             shared evenly (start it with redis-throttle-lab):",
            clock(link.from_us),
            clock(link.to_us),
            grouped(link.keys),
            count(report.keys, "key", "keys"),
        )));
        let _ = writeln!(text, "{}", link.address);
    }
    text
}

/// Returns how the memory is estimated.
fn memory() -> String {
    format!(
        "Memory is an upper estimate: the most keys called within two lifetimes of a stored key, \
         each with its name, its longest value and {SERVER_BYTES_A_KEY} bytes of the server."
    )
}

/// Returns the lines about the input.
fn head(report: &Report) -> String {
    let lines = &report.lines;
    let mut text = format!(
        "{} of {} in the format {}: {} by {} ({})\n",
        count(lines.read, "line", "lines"),
        count(report.files.len() as u64, "file", "files"),
        report.format,
        count(report.calls, "call", "calls"),
        count(report.keys, "key", "keys"),
        report.key,
    );
    if let (Some(from_us), Some(to_us)) = (report.from_us, report.to_us) {
        let took = length(to_us - from_us);
        let _ = writeln!(text, "{} to {} UTC ({took})", clock(from_us), clock(to_us));
    }
    if lines.left_out > 0 {
        let _ = writeln!(text, "{} left out by --where", count(lines.left_out, "line", "lines"));
    }
    if lines.bad > 0 {
        let share = share(lines.bad, lines.read);
        let bad = count(lines.bad, "line", "lines");
        let _ = writeln!(text, "{bad} not read ({share}), the first:");
        for bad in &lines.first_bad {
            let _ =
                writeln!(text, "  {}, line {}: {}: {}", bad.file, bad.line, bad.reason, bad.text);
        }
    }
    text
}

/// Returns a table with a line for each limit.
fn overview(limits: &[LimitReport], has_shadow: bool) -> String {
    let mut head = vec!["", "calls", "denied", "share"];
    if has_shadow {
        head.extend(["in shadow", "share"]);
    }
    head.extend(["keys denied", "retry after at most", "memory at most"]);
    let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
    for limit in limits {
        let mut row = vec![
            limit.name.clone(),
            grouped(limit.calls),
            grouped(limit.denied),
            share(limit.denied, limit.calls),
        ];
        if has_shadow {
            row.push(grouped(limit.shadow_denied));
            row.push(share(limit.shadow_denied, limit.calls));
        }
        row.push(grouped(limit.keys_denied));
        row.push(wait(limit.longest_wait_ms));
        row.push(bytes(limit.memory.bytes));
        rows.push(row);
    }
    table(&rows, 1)
}

fn policies(report: &Report) -> String {
    let head = ["policy", "mode", "rule", "calls", "denied", "in shadow", "keys denied"];
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(|name| (*name).to_owned()).collect()];
    for policy in &report.policies {
        rows.push(vec![
            policy.name.clone(),
            policy.mode.clone(),
            policy.rule.clone(),
            grouped(policy.calls),
            grouped(policy.denied),
            grouped(policy.shadow_denied),
            grouped(policy.keys_denied),
        ]);
    }
    let mut text = table(&rows, 3);
    let shadow: u64 = report.limits.iter().map(|limit| limit.shadow_denied).sum();
    let calls: u64 = report.limits.iter().map(|limit| limit.calls).sum();
    let _ = writeln!(
        text,
        "Enforcing the policies in shadow mode would deny {} more ({}).",
        count(shadow, "call", "calls"),
        share(shadow, calls)
    );
    text
}

/// Returns the picture over time and the most denied keys of a limit.
fn details(limit: &LimitReport) -> String {
    let mut text = format!("{}\n", limit.name);
    for (rule, denied) in &limit.denials_answered_by {
        let denied = count(*denied, "denied call", "denied calls");
        let _ = writeln!(text, "  {rule} gave the reply to {denied}: the longest wait");
    }
    if let Some(queued) = queued(limit) {
        let _ = writeln!(text, "  {queued}");
    }
    if limit.never_allowed > 0 {
        let calls = count(limit.never_allowed, "call costs", "calls cost");
        let _ = writeln!(text, "  {calls} more than the limit and can never be allowed");
    }
    if limit.keys_denied == 0 {
        text.push_str("  no call denied\n");
        return text;
    }
    text.push_str(&picture(&limit.timeline));
    let mut rows = vec![
        ["  key", "calls", "denied", "share", "peak"]
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
    ];
    for KeyReport { key, calls, denied, peak, peak_window_ms } in &limit.most_denied {
        let window = window(peak_window_ms.saturating_mul(1_000));
        rows.push(vec![
            format!("  {key}"),
            grouped(*calls),
            grouped(*denied),
            share(*denied, *calls),
            format!("{} in {window}", grouped(*peak)),
        ]);
    }
    text.push_str(&table(&rows, 1));
    text
}

/// Returns a picture of the denied calls over time.
fn picture(timeline: &TimelineReport) -> String {
    let denied: Vec<u64> = timeline
        .denied
        .iter()
        .zip(&timeline.shadow_denied)
        .map(|(denied, shadow)| denied + shadow)
        .collect();
    let per_column = denied.len().div_ceil(COLUMNS).max(1);
    let columns: Vec<u64> = denied.chunks(per_column).map(|column| column.iter().sum()).collect();
    let most = columns.iter().copied().max().unwrap_or(0).max(1);
    let bar = |denied: &u64| {
        // At least the lowest bar for any denied call.
        let eighths = u128::from(*denied) * 8;
        let level = usize::try_from(eighths.div_ceil(u128::from(most))).unwrap_or(0);
        BARS.get(level).copied().unwrap_or(' ')
    };
    let bars: String = columns.iter().map(bar).collect();
    let column_us = timeline.interval_us.saturating_mul(per_column as u64);
    format!("  denied │{bars}│ at most {} in {}\n", grouped(most), window(column_us))
}

fn suggested(suggestion: &SuggestionReport, report: &Report) -> String {
    let is_fixed = suggestion.frontier.iter().any(|rung| !rung.rung.contains(' '));
    let (rung, units) = if is_fixed { ("window", "limit") } else { ("rate", "burst") };
    let mut head = vec![rung.to_owned()];
    if let Some(first) = suggestion.frontier.first() {
        head.extend(first.units.iter().map(|units| format!("keys: {}", units.cover)));
    }
    let mut rows = vec![head];
    for rung in &suggestion.frontier {
        let mut row = vec![rung.rung.clone()];
        row.extend(rung.units.iter().map(|of| of.units.map_or("-".to_owned(), grouped)));
        row.push(if rung.suggested { "<- suggested".to_owned() } else { String::new() });
        rows.push(row);
    }
    let mut text = format!("The smallest {units} that denies no call of these keys\n\n");
    text.push_str(&table(&rows, 1));
    let Some((rule, line)) = suggestion.rule.as_ref().zip(suggestion.policy_line.as_ref()) else {
        let advice = "no rule covers the keys: name other rates or windows with --ladder";
        let _ = writeln!(text, "\n{advice}");
        return text;
    };
    let margin = match suggestion.margin_percent {
        0 => String::new(),
        percent => format!(", raised by {percent} %"),
    };
    text.push_str(&wrapped(&format!(
        "\n{rule} allows the fewest units in {}{margin}. It would deny {} ({} of the calls are \
         theirs).",
        suggestion.horizon,
        count(suggestion.excluded_keys, "key", "keys"),
        share(suggestion.excluded_calls, report.calls),
    )));
    if !suggestion.excluded.is_empty() {
        let head =
            ["  key".to_owned(), "calls".to_owned(), "share".to_owned(), format!("needs {units}")];
        let mut rows = vec![head.to_vec()];
        for excluded in &suggestion.excluded {
            rows.push(vec![
                format!("  {}", excluded.key),
                grouped(excluded.calls),
                share(excluded.calls, report.calls),
                excluded.needs.map_or("-".to_owned(), grouped),
            ]);
        }
        text.push_str(&table(&rows, 1));
    }
    let _ = writeln!(text, "\nFor a policy file, to watch it first:\n\n  {line}");
    text
}

/// Returns rows with aligned columns. The first `left` columns begin at the left.
fn table(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            if at > 0 {
                line.push_str("  ");
            }
            let is_left = at < left || cell.starts_with('<');
            line.push_str(&if is_left { format!("{cell}{gap}") } else { format!("{gap}{cell}") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a text in lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    const COLUMNS_MAX: usize = 100;
    let mut lines = String::new();
    let mut columns = 0;
    if let Some(rest) = text.strip_prefix('\n') {
        return format!("\n{}", wrapped(rest));
    }
    for word in text.split(' ') {
        let len = word.chars().count();
        if columns > 0 && columns + 1 + len > COLUMNS_MAX {
            lines.push('\n');
            columns = 0;
        } else if columns > 0 {
            lines.push(' ');
            columns += 1;
        }
        lines.push_str(word);
        columns += len;
    }
    lines.push('\n');
    lines
}
