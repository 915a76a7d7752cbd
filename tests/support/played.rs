//! Calls that a page shows with their replies: rows `| at | call | reply | ... |` of a table, or
//! two lines of a block, a call and its reply.

use redis::Value;

use super::text;

/// A call of a page, its time, its expected reply, and the name of a server (or an empty one).
#[derive(Debug, PartialEq)]
pub struct Row {
    pub at_ms: i64,
    pub server: String,
    pub call: Vec<String>,
    pub reply: String,
}

/// Returns the call of a table row; `None` if the line is not such a row.
pub fn row(line: &str) -> Option<Row> {
    let mut cells = line.split(" | ").map(str::trim);
    let (at_ms, server) = instant(cells.next()?.strip_prefix("| ")?)?;
    let mut code = || cells.next()?.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    Some(Row { at_ms, server, call: words(&code()?), reply: code()? })
}

/// Returns the call in two lines of a block: `AT s [SERVER]  CALL`, then the reply. After the
/// reply, two spaces and a note may follow.
pub fn row_of_lines(call: &str, reply: &str) -> Option<Row> {
    let (at, call) = call.split_once("  ")?;
    let (at_ms, server) = instant(at)?;
    let reply = reply.trim_start().split("  ").next()?.trim_end().to_owned();
    Some(Row { at_ms, server, call: words(call), reply })
}

/// Parses `AT s [SERVER]`. Returns the time in ms, and the name of the server or an empty name.
pub fn instant(text: &str) -> Option<(i64, String)> {
    let mut words = text.split(' ');
    let at_ms = words.next()?.parse::<i64>().ok()? * 1_000;
    let is_seconds = words.next() == Some("s");
    is_seconds.then(|| (at_ms, words.next().unwrap_or_default().to_owned()))
}

/// Splits a call into words as redis-cli does: text in double quotes is one word.
pub fn words(call: &str) -> Vec<String> {
    let quoted = |(at, part): (usize, &str)| match at % 2 {
        1 => vec![part.to_owned()],
        _ => part.split_whitespace().map(str::to_owned).collect(),
    };
    call.split('"').enumerate().flat_map(quoted).collect()
}

/// Formats a reply on one line, as the pages do.
pub fn on_a_line(reply: &Value) -> String {
    let of_one = |item: &Value| match item {
        Value::Array(_) => format!("[{}]", on_a_line(item)),
        _ => on_a_line(item),
    };
    match reply {
        Value::Array(items) => items.iter().map(of_one).collect::<Vec<_>>().join(" "),
        Value::Int(integer) => integer.to_string(),
        Value::Okay => "OK".to_owned(),
        other => text(other),
    }
}
