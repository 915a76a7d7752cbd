//! Finds the Rust programs of the pages that use the crates, and compares them with the files here.

use std::fs;
use std::path::{Path, PathBuf};

/// Texts of the pages and their replacements in the files.
const REPLACED: [(&str, &str); 2] = [
    ("\"redis://127.0.0.1:7777\"", "crate::url()"),
    ("#[tokio::main]\nasync fn main()", "pub async fn greet()"),
];

/// The files of this folder that are no program.
const OTHERS: [&str; 2] = ["main.rs", "programs.rs"];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with('.') || ["dist", "node_modules", "target"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            found.extend(pages(&path));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found
}

/// Splits code into words, because the formatter decides on line breaks.
fn words(code: &str) -> Vec<String> {
    code.split_whitespace().map(str::to_owned).collect()
}

/// Returns the blocks of a page in Rust as the files have them.
fn blocks(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let blocks = text.split("\n```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let replace = |code: String, (page, file): (&str, &str)| code.replace(page, file);
    blocks.map(|block| REPLACED.into_iter().fold(block.to_owned(), replace)).collect()
}

#[test]
fn each_program_of_the_pages_is_a_file_of_this_folder() {
    let mut files = Vec::new();
    for entry in fs::read_dir(package().join("tests/page")).unwrap() {
        let path = entry.unwrap().path();
        if !OTHERS.iter().any(|other| path.ends_with(other)) {
            files.push((words(&fs::read_to_string(&path).unwrap()), path, false));
        }
    }
    for page in pages(&package().join("../../..")) {
        let is_page_of_rust = page.ends_with("docs/clients/rust.md");
        for block in blocks(&page) {
            if is_page_of_rust || block.contains("redis_throttle") {
                let file = files.iter_mut().find(|(file, ..)| *file == words(&block));
                file.unwrap_or_else(|| panic!("{} has no file:\n{block}", page.display())).2 = true;
            }
        }
    }
    let unused: Vec<_> = files.iter().filter(|(.., is_used)| !is_used).collect();
    assert!(unused.is_empty(), "no page shows {unused:?}");
    assert!(files.len() > 8, "{}", files.len());
}
