//! Finds the programs that the pages show, and runs them unchanged except for the port.

use super::go;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The port in the pages' programs, which the tests replace.
const PRINTED_PORT: &str = "7777";

/// A language of the pages' programs. `scripts/fetch-clients.sh` fetches the client libraries, and
/// Go fetches its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    JavaScript,
    Go,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text of a page of the repository.
pub fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the only fenced block of a page that is in this language and contains `mark`.
pub fn block(name: &str, language: Language, mark: &str) -> String {
    let fence = match language {
        Language::Python => "\n```python\n",
        Language::JavaScript => "\n```js\n",
        Language::Go => "\n```go\n",
    };
    let text = page(name);
    let blocks = text
        .split(fence)
        .skip(1)
        .map(|rest| rest.split_once("\n```").expect("a block has an end").0);
    let found = blocks.filter(|block| block.contains(mark)).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{name} has one block with {mark}");
    format!("{}\n", found[0])
}

/// Returns the calls that a section of a page shows as `CALL -> reply`, each with its reply, in
/// order.
pub fn calls(name: &str, heading: &str) -> Vec<(String, String)> {
    let text = page(name);
    let (_, section) = text.split_once(&format!("\n{heading}\n")).expect("the section");
    let level = heading.split(' ').next().expect("a heading");
    let section = section.split(&format!("\n{level} ")).next().expect("its end");
    let blocks = section.split("\n```").skip(1).step_by(2);
    let calls = blocks.flat_map(str::lines).filter_map(|line| line.split_once(" -> "));
    calls.map(|(call, reply)| (call.trim().to_owned(), reply.trim().to_owned())).collect()
}

/// Runs a program against a server on this port, and returns its output.
///
/// # Panics
///
/// Panics if the program fails; the message is its standard error.
pub fn run(language: Language, program: &str, port: u16) -> String {
    assert!(program.contains(PRINTED_PORT), "the program connects to {PRINTED_PORT}:\n{program}");
    let program = program.replace(PRINTED_PORT, &port.to_string());
    let directory = tempfile::Builder::new().prefix("rl-").tempdir().expect("a directory");
    let mut command = match language {
        Language::Python => {
            let file = directory.path().join("snippet.py");
            fs::write(&file, &program).expect("the snippet is written");
            let mut command = within_deadline("python3");
            command.arg(file).env("PYTHONPATH", clients().join("python"));
            command
        }
        Language::JavaScript => {
            let file = directory.path().join("snippet.mjs");
            fs::write(&file, &program).expect("the snippet is written");
            // An import finds only packages next to the program.
            let modules = directory.path().join("node_modules");
            std::os::unix::fs::symlink(clients().join("node/node_modules"), modules)
                .expect("a link to the clients");
            let mut command = within_deadline("node");
            command.arg(file);
            command
        }
        Language::Go => {
            let (file, binary) =
                (directory.path().join("snippet.go"), directory.path().join("snippet"));
            fs::write(&file, go::around(&program)).expect("the snippet is written");
            go::build(&file, &binary);
            within_deadline(binary)
        }
    };
    let output = command.stdin(Stdio::null()).output().expect("the language can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language:?} failed:\n{errors}\n{program}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns a command that ends a program after a deadline. Without it, a hanging program would
/// block the test for ever.
pub fn within_deadline(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program);
    command
}

/// Returns the folder with the client libraries.
fn clients() -> PathBuf {
    let cache = root().join(".cache/clients");
    let versions = cache.join("versions");
    assert!(versions.exists(), "no clients: run scripts/fetch-clients.sh .cache/clients");
    cache
}
