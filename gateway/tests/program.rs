//! The program as a user starts it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const LIMITS: &str = "domain: api\nlimits:\n- {match: {user: '*'}, rule: FIXED 5 1m}\n";

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_redis-throttle-gateway"));
    program.env_remove("REDIS_THROTTLE_SERVERS");
    program
}

fn run(words: &[&str], config: &Path) -> Output {
    program().args(words).arg("--config").arg(config).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn check_prints_commands_or_the_place_of_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.yaml");
    std::fs::write(&file, LIMITS).unwrap();
    let good = run(&["--check"], &file);
    let command = "api (user=sample): RL.FIXED rl:user:api|fixed-60s|sample 5 60\n";
    assert_eq!((good.status.code(), text(&good.stdout)), (Some(0), command));
    let policies = run(&["--print-policies"], folder.path());
    assert_eq!(text(&policies.stdout), "user FIXED 5 60\n");
    std::fs::write(&file, LIMITS.replace("FIXED", "FIXD")).unwrap();
    let bad = run(&["--check"], &file);
    assert_eq!(bad.status.code(), Some(2));
    let said = text(&bad.stderr);
    assert!(said.contains(&format!("{}:3:", file.display())), "{said}");
}

#[test]
fn sigterm_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("api.yaml"), LIMITS).unwrap();
    // Nothing listens there: the gateway starts all the same.
    let words = [
        "--server",
        "redis://127.0.0.1:1",
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--config",
    ];
    let mut started = program();
    started.args(words).arg(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = started.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(started.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("redis-throttle-gateway listens on 127.0.0.1:"), "{line}");
    let killed = Command::new("kill").arg(started.id().to_string()).status().unwrap();
    assert!(killed.success());
    let mut said = String::new();
    started.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(started.wait().unwrap().success(), "{said}");
}
