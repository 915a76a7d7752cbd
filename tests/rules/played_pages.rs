//! Makes the calls that pages show and compares the replies, in order. Each section runs on new
//! servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use support::played::{Row, instant, on_a_line, row, row_of_lines, words};
use support::{BASE_US, Server, raw_error};

/// Returns the text of a page in `docs`.
fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    fs::read_to_string(path).expect("a page")
}

/// Returns each line of a text with the line that follows it.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().zip(text.lines().skip(1))
}

/// Returns the calls of each section of a page, from all its tables and blocks. A call may go on
/// after a backslash.
fn sessions(name: &str) -> Vec<(String, Vec<Row>)> {
    let text = page(name).replace("\\\n", " ");
    let sections = text.split("\n## ").map(|section| {
        let title = section.lines().next().unwrap_or_default().to_owned();
        let in_blocks = pairs(section).filter_map(|(call, reply)| row_of_lines(call, reply));
        (title, section.lines().filter_map(row).chain(in_blocks).collect())
    });
    sections.filter(|(_, rows): &(String, Vec<Row>)| !rows.is_empty()).collect()
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
fn page_on_policies_shows_the_replies_of_a_real_server() {
    let sessions = sessions("policies.md");
    let rows: usize = sessions.iter().map(|(_, rows)| rows.len()).sum();
    assert!(sessions.len() >= 3 && rows >= 25, "{rows} rows in {} sections", sessions.len());
    sessions.iter().for_each(|(title, rows)| play(title, rows));
}

#[test]
fn cookbook_shows_the_replies_of_a_real_server() {
    let sessions = sessions("cookbook.md");
    let rows: usize = sessions.iter().map(|(_, rows)| rows.len()).sum();
    assert!(sessions.len() >= 9 && rows >= 55, "{rows} calls in {} sections", sessions.len());
    sessions.iter().for_each(|(title, rows)| play(title, rows));
}

/// The time of the calls of the reference: 2026-01-01 00:00:00 UTC.
const REFERENCE_US: i64 = 1_767_225_600_000_000;

/// Returns the lines of a section's blocks without a language.
fn lines_of_blocks(section: &str) -> Vec<&str> {
    let blocks = section.split("\n```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix('\n')).flat_map(str::lines).collect()
}

/// Makes the calls in lines `CALL -> REPLY` on a new server, at one instant.
fn play_lines(lines: &[&str]) {
    let server = Server::setup().line("rl.redis-cell yes").line("rl.gcra yes").start();
    let mut client = server.client();
    client.freeze(REFERENCE_US);
    for line in lines {
        let (call, expected) = line.split_once(" -> ").expect(line);
        let reply = client.call(&words(call));
        let printed = raw_error(&reply).unwrap_or_else(|| on_a_line(&reply));
        assert_eq!(printed, expected.trim(), "{line}");
    }
}

#[test]
fn reference_shows_the_replies_of_a_real_server() {
    let (text, mut played) = (page("commands.md"), 0);
    for section in text.split("\n## ").skip(1) {
        let lines = lines_of_blocks(section);
        if !lines.is_empty() {
            play_lines(&lines);
        }
        played += lines.len();
    }
    assert!(played > 50, "{played} calls");
}

#[test]
fn page_on_leases_shows_the_replies_of_a_real_server() {
    let sessions = sessions("leases.md");
    let rows: Vec<_> = sessions.iter().map(|(_, rows)| rows.len()).collect();
    assert_eq!(rows, [8]);
    sessions.iter().for_each(|(title, rows)| play(title, rows));
}

#[test]
fn page_on_quotas_shows_the_replies_of_a_real_server() {
    let sessions = sessions("quotas-and-reservations.md");
    let rows: Vec<_> = sessions.iter().map(|(_, rows)| rows.len()).collect();
    assert_eq!(rows, [2, 9, 7]);
    sessions.iter().for_each(|(title, rows)| play(title, rows));
}

#[test]
fn pages_on_alternatives_show_the_replies_of_a_real_server() {
    for (name, expected) in
        [("cloud", 5), ("increx", 5), ("lua", 3), ("redis-cell", 15), ("redis-gcra", 8)]
    {
        let (text, mut played) = (page(&format!("alternatives/{name}.md")), 0);
        for section in text.split("\n## ").skip(1) {
            let mut lines = lines_of_blocks(section);
            lines.retain(|line| line.contains(" -> "));
            if !lines.is_empty() {
                play_lines(&lines);
            }
            played += lines.len();
        }
        assert_eq!(played, expected, "{name}");
    }
}

/// Asserts that every line with a time is recognised as a call, so that none is skipped.
#[test]
fn every_line_that_begins_with_a_time_is_played() {
    let policies = page("policies.md");
    let begins = |line: &&str| line.strip_prefix("| ").is_some_and(|rest| instant(rest).is_some());
    for line in policies.lines().filter(begins) {
        assert!(row(line).is_some(), "policies.md: {line}");
    }
    let cookbook = page("cookbook.md");
    for block in cookbook.split("\n```").skip(1).step_by(2) {
        for (call, reply) in pairs(block).filter(|(call, _)| instant(call).is_some()) {
            let called = row_of_lines(call, reply);
            assert!(called.is_some_and(|row| !row.reply.is_empty()), "cookbook.md: {call}");
        }
    }
}
