//! Tests `scripts/check-commits.sh` on small repositories. `make check` runs the script on this
//! one.

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs git in a folder, with a fixed identity and without the machine's configuration.
fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    for (name, value) in [
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.com"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.com"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ] {
        command.env(name, value);
    }
    let status = command.args(arguments).current_dir(folder).status().expect("git");
    assert!(status.success(), "git {arguments:?}");
}

/// Creates a repository with a first commit, tagged `start`, and one commit per subject.
fn repository(subjects: &[&str]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    git(folder.path(), &["init", "--quiet"]);
    for (number, subject) in ["The First One"].iter().chain(subjects).enumerate() {
        git(folder.path(), &["commit", "--quiet", "--allow-empty", "--message", subject]);
        if number == 0 {
            git(folder.path(), &["tag", "start"]);
        }
    }
    folder
}

/// Runs the script in a folder. Returns whether it succeeds, and its output.
fn check(folder: &Path) -> (bool, String) {
    let script = super::root().join("scripts/check-commits.sh");
    let run = Command::new(script).arg("start").current_dir(folder).output();
    let Output { status, stdout, .. } = run.expect("the script");
    (status.success(), String::from_utf8(stdout).expect("UTF-8"))
}

#[test]
fn check_commits_accepts_an_area_and_an_imperative_within_72_columns() {
    // The three `ü` are six bytes, but three of the 72 columns.
    let longest = format!("a: {}üüü", "a".repeat(66));
    let folder = repository(&[
        "clients/node: report NOPERM on every back end",
        "check-commits.sh: accept `code`",
        &longest,
    ]);
    assert_eq!(check(folder.path()), (true, "Commit subjects: 3 are valid.\n".to_owned()));
}

#[test]
fn check_commits_names_each_invalid_subject() {
    let long = format!("a: {}", "a".repeat(70));
    for subject in ["Add a file", "Area: add a file", "area: Add a file", "area add a file", &long]
    {
        let (is_valid, output) = check(repository(&["a: b", subject]).path());
        assert!(!is_valid && output.contains(subject) && !output.contains("a: b\n"), "{output}");
    }
}

#[test]
fn check_commits_passes_if_the_history_does_not_reach_the_start() {
    let folder = TempDir::new().expect("a folder");
    git(folder.path(), &["init", "--quiet"]);
    git(folder.path(), &["commit", "--quiet", "--allow-empty", "--message", "Shallow"]);
    let (is_valid, output) = check(folder.path());
    assert!(is_valid && output.contains("not checked"), "{output}");
}
