//! Tests the packed clients: installs each with the words of docs/quick-start.md where nothing of
//! this repository is, and runs the program of README.md on a server with the module.

use super::server::Server;
use super::{VERSION, dist, module, repository, run, run_with, text};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the fenced block of a page in a language that contains `word`.
pub fn block(page: &str, language: &str, word: &str) -> String {
    let page = text(repository().join(page));
    let fence = format!("```{language}\n");
    let mut blocks =
        page.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().expect("an end"));
    blocks.find(|block| block.contains(word)).expect("a block with this word").to_owned()
}

fn clients() -> PathBuf {
    dist().join("clients")
}

/// Returns the version of a driver with which the other tests run the programs of the pages.
fn driver(name: &str) -> String {
    let script = text(repository().join("scripts/fetch-clients.sh"));
    let line = script.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    line.expect("a version").to_owned()
}

/// Returns the program of README.md in a language, for a server on another port, with a timeout for
/// busy machines: `patient` is written in place of `hasty`.
fn program(language: &str, server: &Server, hasty: &str, patient: &str) -> String {
    let program = block("README.md", language, "7777");
    assert!(program.contains(hasty), "{program}");
    program.replace(hasty, patient).replace("7777", server.port())
}

/// Returns the line of the page that installs a client, with the version of its driver, and with
/// paths in the folder of the packed clients.
fn installation(start: &str, driver: &str) -> Vec<String> {
    let lines = block("docs/quick-start.md", "sh", "npm install");
    let line = lines.lines().find(|line| line.starts_with(start)).expect("a line");
    assert!(line.ends_with(" redis"), "{line}");
    let folder = format!("{}/", clients().display());
    let words = format!("{line}{driver}").replace("./", &folder);
    words.split(' ').map(str::to_owned).collect()
}

fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

#[test]
fn wheel_decides_a_call_in_a_new_environment() {
    let server = Server::start(&module(), "");
    let folder = tempfile::tempdir().expect("a folder");
    run("python3", &["-m", "venv", "venv"], folder.path());
    let pip = installation("pip ", &format!("=={}", driver("redis_py")));
    let program_of = |name| folder.path().join("venv/bin").join(name).display().to_string();
    run(&program_of("pip"), &words(&pip[1..]), folder.path());
    let program = program("python", &server, "(port=7777)", "(port=7777), timeout_ms=60_000");
    fs::write(folder.path().join("app.py"), program).expect("a program");
    let said = run(&program_of("python"), &["app.py"], folder.path());
    assert_eq!(said, "allowed, 9 left\n");
}

#[test]
fn source_distribution_holds_the_function_library() {
    let archive = clients().join(format!("redis_throttle_client-{VERSION}.tar.gz"));
    let listed = run("tar", &["tzf", archive.to_str().unwrap()], Path::new("/"));
    for name in ["pyproject.toml", "src/redis_throttle_client/_wire/redis_throttle.lua"] {
        assert!(listed.contains(&format!("redis_throttle_client-{VERSION}/{name}\n")), "{listed}");
    }
}

#[test]
fn npm_package_decides_a_call_in_a_new_folder() {
    let server = Server::start(&module(), "");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    // Runs the Node of the client's own suite, because Debian 12 has an older one.
    let script = repository().join("scripts/clients.sh").display().to_string();
    let npm = installation("npm ", &format!("@{}", driver("node_redis")));
    let quiet = ["--prefix", path, "--no-audit", "--no-fund", "--silent"];
    run(&script, &[&["run"], words(&npm).as_slice(), &quiet].concat(), folder.path());
    let app = folder.path().join("app.mjs");
    let program = program("js", &server, "7777')", "7777', { timeoutMs: 60_000 })");
    fs::write(&app, program).expect("a program");
    let said = run(&script, &["run", "node", app.to_str().unwrap()], folder.path());
    assert_eq!(said, "allowed, 9 left\n");
}

#[test]
fn crates_decide_a_call_in_a_new_project() {
    let server = Server::start(&module(), "");
    let folder = tempfile::tempdir().expect("a folder");
    let app = folder.path();
    for name in ["redis-throttle-engine", "redis-throttle-client", "tower-redis-throttle"] {
        let packed = clients().join(format!("{name}-{VERSION}.crate"));
        run("tar", &["xzf", packed.to_str().unwrap()], app);
    }
    // Adds the layer to the lines of the page in the same way.
    let tower = "tower-redis-throttle =";
    let lines = block("docs/quick-start.md", "toml", "[patch.crates-io]")
        .replace("[patch", &format!("{tower} \"{VERSION}\"\n\n[patch"))
        + &format!("{tower} {{ path = \"tower-redis-throttle-{VERSION}\" }}\n");
    let package = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n";
    fs::write(app.join("Cargo.toml"), format!("{package}{lines}")).expect("a manifest");
    // The lock file only fixes the versions of the crates that the project has in common.
    fs::copy(repository().join("Cargo.lock"), app.join("Cargo.lock")).unwrap();
    fs::create_dir(app.join("src")).expect("a folder");
    let patient = "with_options(client, redis_throttle_client::Options::default()\
                   .timeout(std::time::Duration::from_secs(60)))?";
    let program = program("rust", &server, "new(client)", patient);
    fs::write(app.join("src/main.rs"), program).expect("a program");
    // The compiled crates of others are kept for the next run.
    let target = dist().parent().expect("a target directory").join("dist-app");
    let variables =
        [("CARGO_TARGET_DIR", target.as_os_str()), ("CARGO_PROFILE_DEV_DEBUG", "false".as_ref())];
    let said = run_with(&variables, "cargo", &["run", "--quiet"], app);
    assert_eq!(said, "allowed, 9 left\n");
}
