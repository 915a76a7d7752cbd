//! Starts a server with the configuration and the users of deploy/kubernetes.

use super::server::{Server, free_port};
use super::{module, repository, run, text};
use std::fs;
use std::process::Command;

/// Returns the lines below a line that ends with `start`, as long as they are indented as the
/// first.
fn below<'text>(text: &'text str, start: &str) -> Vec<&'text str> {
    let lines = text.lines().skip_while(|line| !line.ends_with(start)).skip(1);
    let lines: Vec<_> = lines.collect();
    let indent = lines[0].len() - lines[0].trim_start().len();
    let is_below = |line: &&&str| line.len() > indent && line[..indent].trim().is_empty();
    lines.iter().take_while(is_below).map(|line| &line[indent..]).collect()
}

#[test]
fn server_of_the_manifest_is_ready_and_replies_to_each_user() {
    let manifest = text(repository().join("deploy/kubernetes/redis-throttle.yaml"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    // Only Redis 8, Valkey 8 and newer have the category: Redis 7.0 gets one command of it.
    let users = manifest.lines().filter_map(|line| line.strip_prefix("#   user "));
    let users: String =
        users.map(|line| format!("user {line}\n").replace("@rl", "rl.gcra")).collect();
    assert_eq!(users.lines().count(), 5, "{users}");
    fs::write(folder.path().join("users.acl"), users).expect("a file");
    let port = free_port();
    let configuration = below(&manifest, "server.conf: |")
        .join("\n")
        .replace("/usr/lib/redis/modules/libredis_throttle.so", &module().display().to_string())
        .replace("/etc/redis-throttle", &path)
        .replace("/data", &path)
        + &format!("\nport {port}\nbind 127.0.0.1\n");
    let file = folder.path().join("server.conf");
    fs::write(&file, configuration).expect("a file");
    let mut command = Command::new(std::env::var("SERVER").unwrap_or("redis-server".to_owned()));
    command.arg(file);
    let operator = ["--user", "operator", "--pass", "OPERATOR", "--no-auth-warning"];
    let server = Server::spawn(command, port, &operator, folder);

    let probe = below(&manifest, "command:");
    let words = probe.iter().map(|line| line.trim_start_matches("- ").trim_matches('"'));
    let words: Vec<_> = words.collect();
    assert_eq!(words[0], "valkey-cli");
    let arguments = ["-p", server.port(), "--no-auth-warning"];
    run("redis-cli", &[&arguments, &words[1..]].concat(), &repository());
    let call_as = |user: &str, password: &str, line: &str| {
        let user = ["--user", user, "--pass", password];
        let words: Vec<_> = line.split(' ').collect();
        run("redis-cli", &[&arguments[..], &user, &words].concat(), &repository())
    };
    assert_eq!(call_as("app", "APP", "RL.GCRA rl:user:42 6 10 60"), "1\n6\n5\n0\n6000\n");
    assert!(call_as("metrics", "METRICS", "RL.METRICS").contains("\nrl_build_info{"));
    assert!(call_as("metrics", "METRICS", "RL.GCRA rl:user:42 6 10 60").starts_with("NOPERM"));
}
