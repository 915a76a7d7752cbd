//! The tables of pages, called row by row: a section is a session on new servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use redis::Value;

use crate::support::{BASE_US, Server, text};

/// A row `| at | call | reply | ... |` of a table; a name after the instant is that of a server.
#[derive(Debug, PartialEq)]
struct Row {
    at_ms: i64,
    server: String,
    call: Vec<String>,
    reply: String,
}

/// The tables of a page, those of one section together.
fn sessions(page: &str) -> Vec<(String, Vec<Row>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let page = fs::read_to_string(path).expect("a page");
    let sections = page.split("\n## ").map(|section| {
        let title = section.lines().next().unwrap_or_default().to_owned();
        (title, section.lines().filter_map(row).collect())
    });
    sections.filter(|(_, rows): &(String, Vec<Row>)| !rows.is_empty()).collect()
}

fn row(line: &str) -> Option<Row> {
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
fn on_a_line(reply: &Value) -> String {
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

fn play(title: &str, rows: &[Row]) {
    let mut servers = BTreeMap::new();
    for Row { at_ms, server, call, reply } in rows {
        let server = servers.entry(server).or_insert_with(Server::start);
        let mut client = server.client();
        client.freeze(BASE_US + at_ms * 1_000);
        let call = call.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(on_a_line(&client.call(&call)), *reply, "{title}: {call:?}");
    }
}

#[test]
fn the_tables_of_the_page_on_policies_are_what_a_server_answers() {
    let sessions = sessions("policies.md");
    let rows: usize = sessions.iter().map(|(_, rows)| rows.len()).sum();
    assert!(sessions.len() >= 3 && rows >= 25, "{rows} rows in {} sections", sessions.len());
    sessions.iter().for_each(|(title, rows)| play(title, rows));
}

#[test]
fn the_tables_of_the_page_on_patterns_are_what_a_server_answers() {
    let sessions = sessions("patterns.md");
    let rows: usize = sessions.iter().map(|(_, rows)| rows.len()).sum();
    assert!(sessions.len() >= 9 && rows >= 45, "{rows} rows in {} sections", sessions.len());
    sessions.iter().for_each(|(title, rows)| play(title, rows));
}

/// No row may drop out because it is not recognised as one.
#[test]
fn every_line_of_a_table_that_begins_with_an_instant_is_called() {
    for page in ["policies.md", "patterns.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
        let text = fs::read_to_string(path).expect("a page");
        let begins_with_an_instant = |line: &str| {
            let mut words = line.strip_prefix("| ").unwrap_or_default().split(' ');
            words.next().is_some_and(|word| word.parse::<i64>().is_ok())
                && words.next() == Some("s")
        };
        for line in text.lines().filter(|line| begins_with_an_instant(line)) {
            assert!(row(line).is_some(), "{page}: {line}");
        }
    }
}
