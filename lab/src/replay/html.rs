//! The report as one HTML file, which loads nothing.

use super::escaping::html;
use super::report::{LimitReport, Report, SuggestionReport, TimelineReport};
use super::wording::{bytes, clock, count, grouped, queued, share, wait, window};
use std::fmt::Write as _;

const STYLE: &str = include_str!("html.css");

/// The width and height of a chart, in units of its own.
const WIDTH: u64 = 960;
const HEIGHT: u64 = 160;

/// Returns the HTML of a report.
pub fn document(report: &Report) -> String {
    let mut document = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
         http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\n<title>Replay of a log</title>\n",
    );
    let _ = write!(document, "<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n");
    document.push_str(&head(report));
    for doubt in &report.doubts {
        let _ =
            writeln!(document, "<p><strong>The figures may be wrong:</strong> {}</p>", html(doubt));
    }
    if !report.notes.is_empty() {
        document.push_str("<ul>\n");
        for note in &report.notes {
            let _ = writeln!(document, "<li>{}</li>", html(note));
        }
        document.push_str("</ul>\n");
    }
    if !report.limits.is_empty() {
        document.push_str(&overview(&report.limits, !report.policies.is_empty()));
    }
    if !report.policies.is_empty() {
        document.push_str(&policies(report));
    }
    for limit in &report.limits {
        document.push_str(&details(limit));
    }
    if let Some(suggestion) = &report.suggestion {
        document.push_str(&suggested(suggestion, report));
    }
    let _ = write!(
        document,
        "</main>\n<footer>redis-throttle-lab {}</footer>\n</body>\n</html>\n",
        html(report.version)
    );
    document
}

fn head(report: &Report) -> String {
    let lines = &report.lines;
    let files: Vec<_> = report.files.iter().map(|file| html(file)).collect();
    let mut text = format!(
        "<h1>Replay of {}</h1>\n<p>{} in the format {}, {} by {} (<code>{}</code>)",
        files.join(", "),
        count(lines.read, "line", "lines"),
        html(&report.format),
        count(report.calls, "call", "calls"),
        count(report.keys, "key", "keys"),
        html(&report.key),
    );
    if let (Some(from_us), Some(to_us)) = (report.from_us, report.to_us) {
        let _ = write!(text, ", {} to {} UTC", clock(from_us), clock(to_us));
    }
    text.push_str(".</p>\n");
    if lines.bad > 0 {
        let share = share(lines.bad, lines.read);
        let bad = count(lines.bad, "line", "lines");
        let _ = write!(text, "<p>{bad} not read ({share}), the first:</p>\n<ul>\n");
        for bad in &lines.first_bad {
            let reason = html(&bad.reason);
            let (file, start) = (html(&bad.file), html(&bad.text));
            let _ = writeln!(
                text,
                "<li>{file}, line {}: {reason}: <code>{start}</code></li>",
                bad.line
            );
        }
        text.push_str("</ul>\n");
    }
    text
}

fn overview(limits: &[LimitReport], has_shadow: bool) -> String {
    let mut head = vec!["Limit", "Calls", "Denied", "Share"];
    if has_shadow {
        head.push("In shadow mode");
    }
    head.extend(["Keys denied", "Retry after at most", "Memory at most"]);
    let rows = limits.iter().map(|limit| {
        let (calls, denied) = (grouped(limit.calls), grouped(limit.denied));
        let mut row = vec![limit.name.clone(), calls, denied, share(limit.denied, limit.calls)];
        if has_shadow {
            row.push(grouped(limit.shadow_denied));
        }
        row.push(grouped(limit.keys_denied));
        row.push(wait(limit.longest_wait_ms));
        row.push(bytes(limit.memory.bytes));
        row
    });
    table("The limits", &head, rows)
}

fn policies(report: &Report) -> String {
    let head = ["Policy", "Mode", "Rule", "Calls", "Denied", "In shadow mode", "Keys denied"];
    let rows = report.policies.iter().map(|policy| {
        vec![
            policy.name.clone(),
            policy.mode.clone(),
            policy.rule.clone(),
            grouped(policy.calls),
            grouped(policy.denied),
            grouped(policy.shadow_denied),
            grouped(policy.keys_denied),
        ]
    });
    table("The policies", &head, rows)
}

fn details(limit: &LimitReport) -> String {
    let mut text = format!("<h2>{}</h2>\n", html(&limit.name));
    for (rule, denied) in &limit.denials_answered_by {
        let denied = count(*denied, "denied call", "denied calls");
        let _ = writeln!(
            text,
            "<p><code>{}</code> gave the reply to {denied}: the longest wait.</p>",
            html(rule)
        );
    }
    if let Some(queued) = queued(limit) {
        let _ = writeln!(text, "<p>{queued}.</p>");
    }
    if limit.never_allowed > 0 {
        let calls = count(limit.never_allowed, "call costs", "calls cost");
        let _ = writeln!(text, "<p>{calls} more than the limit and can never be allowed.</p>");
    }
    text.push_str(&chart(&limit.name, &limit.timeline));
    if limit.most_denied.is_empty() {
        text.push_str("<p>No call denied.</p>\n");
        return text;
    }
    let rows = limit.most_denied.iter().map(|key| {
        let window = window(key.peak_window_ms.saturating_mul(1_000));
        vec![
            key.key.clone(),
            grouped(key.calls),
            grouped(key.denied),
            share(key.denied, key.calls),
            format!("{} in {window}", grouped(key.peak)),
        ]
    });
    text + &table("The most denied keys", &["Key", "Calls", "Denied", "Share", "Peak"], rows)
}

/// Returns a chart of the calls over time: a bar for each interval, its denied part at the bottom.
fn chart(name: &str, timeline: &TimelineReport) -> String {
    let most = timeline.calls.iter().copied().max().unwrap_or(0).max(1);
    let bars = timeline.calls.len().max(1) as u64;
    let height = |calls: u64| {
        u64::try_from(u128::from(calls) * u128::from(HEIGHT) / u128::from(most)).unwrap_or(HEIGHT)
    };
    let end_us = timeline.interval_us.saturating_mul(bars).saturating_add(timeline.start_us);
    let mut text = format!(
        "<figure>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" preserveAspectRatio=\"none\" \
         aria-label=\"Calls over time under {}: at most {} in {}\">\n",
        html(name),
        grouped(most),
        window(timeline.interval_us)
    );
    let columns = timeline.calls.iter().zip(&timeline.denied).zip(&timeline.shadow_denied);
    for (at, ((calls, denied), shadow)) in (0_u64..).zip(columns) {
        let (left, right) = (at * WIDTH / bars, (at + 1) * WIDTH / bars);
        let width = (right - left).max(1);
        let mut bar = |class: &str, below: u64, above: u64| {
            let (low, high) = (height(below), height(above));
            if high > low {
                let (top, tall) = (HEIGHT - high, high - low);
                let _ = writeln!(
                    text,
                    "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" \
                     height=\"{tall}\"/>"
                );
            }
        };
        bar("denied", 0, *denied);
        bar("shadow", *denied, denied + shadow);
        bar("allowed", denied + shadow, *calls);
    }
    let _ = write!(
        text,
        "</svg>\n<figcaption><span class=\"key allowed\"></span> allowed <span class=\"key \
         denied\"></span> denied{} — {} to {} UTC, at most {} in {}</figcaption>\n</figure>\n",
        if timeline.shadow_denied.iter().any(|shadow| *shadow > 0) {
            " <span class=\"key shadow\"></span> denied if enforced"
        } else {
            ""
        },
        clock(timeline.start_us),
        clock(end_us),
        count(most, "call", "calls"),
        window(timeline.interval_us),
    );
    text
}

fn suggested(suggestion: &SuggestionReport, report: &Report) -> String {
    let mut text = String::from("<h2>Suggestion</h2>\n");
    match (&suggestion.rule, &suggestion.policy_line) {
        (Some(rule), Some(line)) => {
            let _ = write!(
                text,
                "<p><code>{}</code> allows the fewest units in {}. It would deny {} ({} of the \
                 calls are theirs).</p>\n<p>For a policy file: <code>{}</code></p>\n",
                html(rule),
                html(&suggestion.horizon),
                count(suggestion.excluded_keys, "key", "keys"),
                share(suggestion.excluded_calls, report.calls),
                html(line),
            );
        }
        _ => text.push_str("<p>No rule covers the keys.</p>\n"),
    }
    let covers = suggestion.frontier.first().map(|rung| &rung.units);
    let mut head = vec!["Rate or window".to_owned()];
    head.extend(covers.into_iter().flatten().map(|units| format!("Keys: {}", units.cover)));
    let head: Vec<_> = head.iter().map(String::as_str).collect();
    let rows = suggestion.frontier.iter().map(|rung| {
        let mark = if rung.suggested { " (suggested)" } else { "" };
        let mut row = vec![format!("{}{mark}", rung.rung)];
        row.extend(rung.units.iter().map(|of| of.units.map_or("-".to_owned(), grouped)));
        row
    });
    text.push_str(&table("The smallest burst or limit that denies no call", &head, rows));
    if !suggestion.excluded.is_empty() {
        let rows = suggestion.excluded.iter().map(|excluded| {
            let needs = excluded.needs.map_or("-".to_owned(), grouped);
            vec![
                excluded.key.clone(),
                grouped(excluded.calls),
                share(excluded.calls, report.calls),
                needs,
            ]
        });
        let head = ["Key", "Calls", "Share of all calls", "Needs"];
        text.push_str(&table("Keys that it would deny", &head, rows));
    }
    text
}

/// Returns a table whose first column has the names of its rows.
fn table(caption: &str, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n\
         <table>\n<caption>{0}</caption>\n<thead><tr>",
        html(caption)
    );
    for name in head {
        let _ = write!(text, "<th scope=\"col\">{}</th>", html(name));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        text.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let cell = html(cell);
            let _ = match at {
                0 => write!(text, "<th scope=\"row\">{cell}</th>"),
                _ => write!(text, "<td>{cell}</td>"),
            };
        }
        text.push_str("</tr>\n");
    }
    text + "</tbody>\n</table>\n</div>\n"
}
