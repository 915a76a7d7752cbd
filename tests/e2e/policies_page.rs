//! The tables of the page on policies, called row by row: a section is a session on a new server.

use std::fs;
use std::path::Path;

use redis::Value;

use crate::support::{BASE_US, Client, Server, text};

/// A row `| at | call | reply | ... |` of a table.
struct Row {
    at_ms: i64,
    call: String,
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
    let at = cells.next()?.strip_prefix("| ")?;
    let at_ms = at.strip_suffix(" s")?.parse::<i64>().ok()? * 1_000;
    let mut code = || cells.next()?.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    Some(Row { at_ms, call: code()?, reply: code()? })
}

/// A reply on one line, as the page has it.
fn on_a_line(reply: &Value) -> String {
    match reply {
        Value::Array(items) => items.iter().map(on_a_line).collect::<Vec<_>>().join(" "),
        Value::Int(integer) => integer.to_string(),
        Value::Okay => "OK".to_owned(),
        other => text(other),
    }
}

fn play(client: &mut Client, title: &str, rows: &[Row]) {
    for Row { at_ms, call, reply } in rows {
        client.freeze(BASE_US + at_ms * 1_000);
        assert_eq!(on_a_line(&client.run(call)), *reply, "{title}: {call}");
    }
}

#[test]
fn the_tables_of_the_page_on_policies_are_what_a_server_answers() {
    let sessions = sessions("policies.md");
    let rows: usize = sessions.iter().map(|(_, rows)| rows.len()).sum();
    assert!(sessions.len() >= 3 && rows >= 25, "{rows} rows in {} sections", sessions.len());
    for (title, rows) in sessions {
        play(&mut Server::start().client(), &title, &rows);
    }
}
