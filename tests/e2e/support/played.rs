//! Calls that a page shows with their replies: rows `| at | call | reply | ... |` of a table, or
//! two lines of a block, the call and its reply.

use redis::Value;

use super::text;

/// A call of a page at an instant. A name after the instant is the name of a server.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub at_ms: i64,
    pub server: String,
    pub call: Vec<String>,
    pub reply: String,
}

/// Returns the call of a table's row, if the line is such a row.
pub fn row(line: &str) -> Option<Row> {
    let mut cells = line.split(" | ").map(str::trim);
    let (at_ms, server) = instant(cells.next()?.strip_prefix("| ")?)?;
    let mut code = || cells.next()?.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    Some(Row { at_ms, server, call: words(&code()?), reply: code()? })
}

/// Returns the call of two lines of a block: `AT s [SERVER]  CALL`, then the reply and, after two
/// spaces, perhaps a note.
pub fn row_of_lines(call: &str, reply: &str) -> Option<Row> {
    let (at, call) = call.split_once("  ")?;
    let (at_ms, server) = instant(at)?;
    let reply = reply.trim_start().split("  ").next()?.trim_end().to_owned();
    Some(Row { at_ms, server, call: words(call), reply })
}

/// Reads `AT s [SERVER]`: the instant in ms, and the server's name, or an empty one.
pub fn instant(text: &str) -> Option<(i64, String)> {
    let mut words = text.split(' ');
    let at_ms = words.next()?.parse::<i64>().ok()? * 1_000;
    let is_seconds = words.next() == Some("s");
    is_seconds.then(|| (at_ms, words.next().unwrap_or_default().to_owned()))
}

/// Splits a call into words as redis-cli does: text in double quotes is one word.
fn words(call: &str) -> Vec<String> {
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
