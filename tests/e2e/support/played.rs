//! Rows of a page that are calls: `| at | call | reply | ... |`.

use redis::Value;

use super::text;

/// A row `| at | call | reply | ... |` of a table; a name after the instant is that of a server.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub at_ms: i64,
    pub server: String,
    pub call: Vec<String>,
    pub reply: String,
}

/// The row that a line is, if it is one.
pub fn row(line: &str) -> Option<Row> {
    let mut cells = line.split(" | ").map(str::trim);
    let mut at = cells.next()?.strip_prefix("| ")?.split(' ');
    let at_ms = at.next()?.parse::<i64>().ok()? * 1_000;
    let is_seconds = at.next() == Some("s");
    let server = at.next().unwrap_or_default().to_owned();
    let mut code = || cells.next()?.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    is_seconds.then_some(Row { at_ms, server, call: words(&code()?), reply: code()? })
}

/// The words of a call, as redis-cli reads them: what stands in double quotes is one of them.
fn words(call: &str) -> Vec<String> {
    let quoted = |(at, part): (usize, &str)| match at % 2 {
        1 => vec![part.to_owned()],
        _ => part.split_whitespace().map(str::to_owned).collect(),
    };
    call.split('"').enumerate().flat_map(quoted).collect()
}

/// A reply on one line, as the pages have it.
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
