//! Checks that a suite runs every program of the pages. The suites find a program by the language
//! of its block.
//!
//! A program in Go, Java, JavaScript, Python, Rust or TypeScript that names a client is found and
//! run by the suite of that client. The programs of a driver alone are listed here and run by
//! `snippets.rs`.

use super::{english, root};
use std::collections::BTreeMap;
use std::fs;

/// The languages of programs, and the other names that a block may have: calls for a shell, whose
/// blocks in docs/without-the-module.md run in `functions.rs`; data, of which Java's suite runs
/// YAML and `make dist` TOML; replies and pictures.
const LANGUAGES: [&str; 6] = ["go", "java", "js", "python", "rust", "ts"];
const OTHERS: [&str; 7] = ["", "json", "sh", "text", "toml", "xml", "yaml"];

/// The names under which programs import the clients.
const CLIENTS: [&str; 5] = [
    "import redisthrottle.",
    "redis-throttle-client",
    "redis-throttle.invalid/go",
    "redis_throttle_client",
    "tower_redis_throttle",
];

/// The programs of a driver alone: page, language, and the text by which `snippets.rs` finds each.
const OF_DRIVERS: [(&str, &str, &str); 9] = [
    ("docs/clients/drivers.md", "go", "redis.NewClient"),
    ("docs/clients/drivers.md", "go", "rueidis.NewClient"),
    ("docs/clients/drivers.md", "js", "extends Command"),
    ("docs/clients/drivers.md", "js", "from 'redis'"),
    ("docs/clients/drivers.md", "js", "import { Redis } from 'ioredis'"),
    ("docs/clients/drivers.md", "python", "import redis"),
    ("docs/clients/drivers.md", "rust", "pub fn check"),
    ("docs/leases.md", "js", "RL.RENEW"),
    ("docs/leases.md", "python", "RL.RENEW"),
];

/// Returns the blocks of a page with their languages.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').expect("a block has lines")).collect()
}

/// Returns every page of the repository by its path.
fn pages() -> BTreeMap<String, String> {
    let mut pages = english::sources();
    pages.retain(|path, _| path.ends_with(".md"));
    pages
}

#[test]
fn every_block_has_a_language_that_a_suite_knows() {
    let (pages, mut programs) = (pages(), 0);
    for (page, text) in &pages {
        assert_eq!(text.matches("\n```").count() % 2, 0, "{page} has a block without an end");
        let indented = text.lines().find(|line| line.trim_start() != *line && line.contains("```"));
        assert_eq!(indented, None, "{page}: no suite finds an indented block");
        for (language, block) in blocks(text) {
            let is_known = LANGUAGES.contains(&language) || OTHERS.contains(&language);
            assert!(is_known, "{page} has a block in {language}:\n{block}");
            programs += usize::from(LANGUAGES.contains(&language));
        }
    }
    assert!(programs > 35, "{programs} programs in {} pages", pages.len());
}

#[test]
fn every_program_of_a_driver_alone_is_run() {
    let suite = fs::read_to_string(root().join("tests/snippets.rs")).expect("the suite");
    let mut found = BTreeMap::new();
    for (page, text) in &pages() {
        for (language, block) in blocks(text) {
            if !LANGUAGES.contains(&language) || CLIENTS.iter().any(|name| block.contains(name)) {
                continue;
            }
            let listed = |program: &&(&str, &str, &str)| {
                program.0 == page && program.1 == language && block.contains(program.2)
            };
            let program = OF_DRIVERS.iter().find(listed);
            let program = program.unwrap_or_else(|| panic!("{page}: is this run?\n{block}"));
            *found.entry(program).or_insert(0) += 1;
        }
    }
    for program in &OF_DRIVERS {
        assert_eq!(found.get(program), Some(&1), "{program:?}");
        let (page, language, mark) = program;
        let is_run = suite.contains(&format!("\"{page}\"")) && suite.contains(mark);
        // The suite compiles the program in Rust from a file, and compares the two.
        assert!(is_run || *language == "rust", "tests/snippets.rs does not run {program:?}");
    }
}
