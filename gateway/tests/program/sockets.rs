//! Unix sockets, and the limit of open files.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use tokio::net::UnixStream;

use crate::started::{Gateway, LIMITS, program};
use crate::wire::{allows, channel, get};

const DOWN: &str = "redis://127.0.0.1:1";

#[tokio::test]
async fn both_listeners_serve_unix_sockets_and_remove_them() {
    let folder = tempfile::tempdir().unwrap();
    let [grpc, http] = ["grpc.sock", "http.sock"].map(|name| folder.path().join(name));
    // A socket is left if a program was killed.
    drop(UnixListener::bind(&http).unwrap());
    let words = [&grpc, &http].map(|path| format!("unix:{}", path.display()));
    let mut gateway = Gateway::with(DOWN, &["--grpc", &words[0], "--http", &words[1]], &[]);
    assert_eq!(gateway.addresses, words);
    for path in [&grpc, &http] {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "{}", path.display());
    }
    let response = get(UnixStream::connect(&http).await.unwrap(), "/healthcheck", &[]).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let channel = channel(UnixStream::connect(&grpc).await.unwrap()).await.unwrap();
    assert!(allows(channel).await.unwrap());
    gateway.signal("TERM");
    assert!(gateway.ended().await.success());
    assert!(!grpc.exists() && !http.exists());
}

#[tokio::test]
async fn socket_of_another_program_stays_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grpc.sock");
    let mut gateway = Gateway::with(DOWN, &["--grpc", &format!("unix:{}", path.display())], &[]);
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    gateway.signal("TERM");
    assert!(gateway.ended().await.success());
    assert!(path.exists());
}

#[tokio::test]
async fn peer_on_a_unix_socket_is_trusted_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let gateway = Gateway::with(DOWN, &["--http", &format!("unix:{}", path.display())], &[]);
    let file = "domain: web
http:
  trusted_proxies: [unix]
  descriptors: [{client: client_address}]
limits:
  - {match: {client: '*'}, rule: FIXED 1 1h}
";
    std::fs::write(gateway.path("limits/web.yaml"), file).unwrap();
    gateway.signal("HUP");
    gateway.event("configuration_loaded", 2).await;
    let check = async |fields: &[(&str, &str)]| {
        get(UnixStream::connect(&path).await.unwrap(), "/check/web", fields).await
    };
    let response = check(&[("X-Forwarded-For", "203.0.113.9")]).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let unknown = check(&[]).await;
    assert!(unknown.starts_with("HTTP/1.1 400 "), "{unknown}");
}

#[test]
fn used_socket_and_other_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let _used = UnixListener::bind(at("used")).unwrap();
    std::fs::write(at("file"), "a text").unwrap();
    std::fs::write(at("api.yaml"), LIMITS).unwrap();
    let used = format!("unix:{}", at("used").display());
    for name in ["used", "file"] {
        let address = format!("unix:{}", at(name).display());
        let mut program = program();
        program.args(["--server", DOWN, "--grpc", &address, "--http", &used, "--config"]);
        program.arg(at("api.yaml"));
        let ended = program.output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        let text = format!("--grpc: cannot listen on {address}: Address already in use");
        assert!(stderr.contains(&text), "{stderr}");
        assert!(at(name).exists());
    }
}

#[test]
fn soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("api.yaml"), LIMITS).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 128; exec \"$@\"", "sh"]);
    command.arg(program().get_program());
    command.args(["--server", DOWN, "--http", "127.0.0.1:0", "--config"]);
    let mut process = command.arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut greeting = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.id())).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(greeting.contains(" listens on "), "{greeting}");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut words = line.split_whitespace().skip(3);
    let (soft, hard) = (words.next().unwrap(), words.next().unwrap());
    assert_eq!(soft, hard);
    assert_ne!(soft, "128", "the hard limit of this machine is too low for the test");
}
