//! The snippets of `deploy/gateway`, each in the proxy that it is for. Traefik's is not tested.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Served;
use super::server::until;
use super::wire::{Response, send};

/// The lines of a snippet that pass requests while the gateway is down, and their replacement.
type Closing = &'static [(&'static str, &'static str)];

const NGINX_CLOSED: Closing = &[("error_page 502 504 = @open;", "")];
const CADDY_CLOSED: Closing = &[("reverse_proxy @down 127.0.0.1:3000", "respond @down 503")];
const HAPROXY_CLOSED: Closing = &[("-m int 200 0 }", "-m int 200 }")];

#[tokio::test]
async fn nginx_keeps_the_limits() {
    keeps_the_limits("nginx", NGINX_CLOSED).await;
}

#[tokio::test]
async fn caddy_keeps_the_limits() {
    keeps_the_limits("caddy", CADDY_CLOSED).await;
}

#[tokio::test]
async fn haproxy_keeps_the_limits() {
    keeps_the_limits("haproxy", HAPROXY_CLOSED).await;
}

async fn keeps_the_limits(program: &str, closed: Closing) {
    if std::env::var_os("CI").is_none() && Command::new(program).arg("-v").output().is_err() {
        eprintln!("skipped: {program} is not installed");
        return;
    }
    let mut served = Served::start().await;
    let open = Proxy::start(program, served.port, &[]).await;
    let shut = Proxy::start(program, served.port, closed).await;
    for left in ["\"each\";r=2;", "\"each\";r=1;", "\"each\";r=0;"] {
        let response = open.get("/a?b=c").await;
        assert_eq!((response.status, &*response.body), (200, "GET /a?b=c 0"), "{program}");
        // Caddy passes on only the fields of a denial.
        let field = if program == "caddy" { "" } else { left };
        assert!(response.field("ratelimit").contains(field), "{response:?}");
    }
    let denied = open.get("/a?on_error=allow").await;
    assert_eq!(denied.status, 429, "{program}");
    assert!((1..=3_600).contains(&denied.field("retry-after").parse::<u64>().unwrap()));
    assert!(denied.field("ratelimit").contains("\"each\";r=0;"), "{denied:?}");
    // The proxy replaces what its client says about the request.
    let forged = [("X-Forwarded-Uri", "/other"), ("X-Forwarded-For", "198.51.100.1")];
    let response = send(open.port, ("GET", "/a"), &forged, "").await.unwrap();
    assert_eq!(response.status, 429, "{program}");
    let posted = send(open.port, ("POST", "/post"), &[], "body").await.unwrap();
    assert_eq!((posted.status, &*posted.body), (200, "POST /post 4"), "{program}");
    keeps_the_limits_of_odd_requests(program, &open).await;

    served.redis.run(&["RL.POLICY", "SET", "callers", "BLOCK", "FIXED", "9", "1h"]).await;
    let banned = send(open.port, ("GET", "/eve"), &[("X-User", "eve")], "").await.unwrap();
    // nginx learns of a ban as of any other denial.
    assert_eq!(banned.status, if program == "nginx" { 429 } else { 403 }, "{program}");

    served.redis.end();
    assert_eq!(open.get("/strict").await.status, 503, "{program}");
    assert_eq!(open.get("/loose").await.status, 200, "{program}");

    served.end().await;
    assert_eq!(open.get("/down").await.status, 200, "{program}");
    assert_eq!(shut.get("/down").await.status, 503, "{program}");
}

/// Sends requests by which a client might leave a limit, or end the proxy.
async fn keeps_the_limits_of_odd_requests(program: &str, open: &Proxy) {
    let with = async |target: &str, fields: &[(&str, &str)]| {
        let response = send(open.port, ("GET", target), fields, "").await;
        response.unwrap_or_else(|| panic!("{program} sent no response to {} fields", fields.len()))
    };
    let named = [("X-User", "ann")];
    let statuses = [with("/b", &named).await.status, with("/c", &named).await.status];
    assert_eq!(statuses, [200, 429], "{program}");
    // The proxy itself refuses a large head, before the gateway, which reads 64 KiB of it.
    let large = with("/large", &[("X-A", &"a".repeat(45_000))]).await.status;
    assert_eq!(large, if program == "caddy" { 431 } else { 400 }, "{program}");
    // The gateway's page says how to see such a refusal.
    let refused = with("/refused", &[("X-User", "bob"); 2]).await.status;
    let log = fs::read_to_string(open.folder.path().join("log")).expect("a log");
    assert_eq!(refused, if program == "caddy" { 400 } else { 503 }, "{program}\n{log}");
    assert!(program != "nginx" || log.contains("auth request unexpected status: 400"), "{log}");
    // HAProxy takes 101 fields, and three come with each request.
    for count in [94, 97, 98, 200] {
        with("/many", &vec![("X-A", "b"); count]).await;
        assert_ne!(with("/users", &vec![("X-User", "bob"); count]).await.status, 200, "{program}");
    }
    let is_limited = async |after: &str| {
        assert_eq!(with("/c", &named).await.status, 429, "{program}, after {after}");
    };
    // Heads of 28 KB that the gateway reads, and two with more fields than it reads.
    for (count, length) in [(200, 134), (900, 24), (1_800, 10), (3_900, 1)] {
        let (target, value) = (format!("/fields/{count}"), "a".repeat(length));
        let fields = vec![("X-A", &*value); count];
        for _ in 0..3 {
            with(&target, &fields).await;
        }
        assert_ne!(with(&target, &fields).await.status, 200, "{program}, {count} fields");
        is_limited("many fields").await;
    }
    // Hosts that the proxy may be unable to send, and one that exceeds 64 KiB if sent twice.
    let long = format!("http://{}/", "a".repeat(34_000));
    for target in ["http://%ff/", "http://[fe80::1%25%20x]/", "http://a%00b/", &long] {
        let _ = send(open.port, ("GET", target), &[], "").await;
        is_limited("an odd host").await;
    }
    for (name, value) in [("X-A", "\u{1}"), ("X-A", "\u{7f}"), ("X-\u{e4}", "a"), ("", "a")] {
        let _ = send(open.port, ("GET", "/field"), &[(name, value)], "").await;
        is_limited("an odd field").await;
    }
    // Bodies that cannot be read.
    for fields in
        [[("X-A", "a"), ("Transfer-Encoding", "chunked")], [("X-A", "a"), ("Expect", "x")]]
    {
        let _ = send(open.port, ("POST", "/body"), &fields, "no chunk\r\n").await;
        is_limited("an odd body").await;
    }
    // As many bytes as HAProxy takes, which a request to the gateway must hold, too.
    for length in (6_800..8_192).step_by(48) {
        let (target, user) = (format!("/{}", "a".repeat(length)), "b".repeat(length));
        let fields = [("X-User", &*user)];
        send(open.port, ("GET", &target), &fields, "").await;
        let again = with(&target, &fields).await.status;
        assert_ne!(again, 200, "{program}, twice {length} bytes");
    }
    // The limit is that of the host to which the proxy sends the request.
    with("http://shop.example/d", &[]).await;
    let again = with("http://shop.example/e", &[]).await.status;
    // HAProxy refuses a host that is not that of the field `Host`.
    assert_eq!(again, if program == "haproxy" { 400 } else { 429 }, "{program}");
    assert_eq!(with("/after", &[]).await.status, 200, "{program}");
}

/// A running proxy in front of an application that responds with the request's method, target and
/// number of bytes.
struct Proxy {
    port: u16,
    process: Child,
    folder: TempDir,
}

impl Proxy {
    async fn start(program: &str, gateway: u16, replaced: Closing) -> Self {
        let folder = TempDir::new().expect("a folder");
        let port = free_port();
        let ports = Ports { port, gateway, application: application().await };
        let mut command = match program {
            "nginx" => nginx(folder.path(), &ports, replaced),
            "caddy" => caddy(folder.path(), &ports, replaced),
            _ => haproxy(folder.path(), &ports, replaced),
        };
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let proxy = Self { port, process: process.expect(program), folder };
        let responds = async || send(port, ("GET", "/start"), &[], "").await.is_some();
        until("the proxy responds", responds).await;
        proxy
    }

    async fn get(&self, target: &str) -> Response {
        send(self.port, ("GET", target), &[], "").await.expect("a response")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx and HAProxy end their workers on SIGTERM, but not on SIGKILL.
        let _ = Command::new("sh").args(["-c", &format!("kill {}", self.process.id())]).status();
        let _ = self.process.wait();
    }
}

struct Ports {
    port: u16,
    gateway: u16,
    application: u16,
}

impl Ports {
    /// Returns a file of `deploy/gateway` with these ports.
    fn snippet(&self, name: &str, replaced: Closing) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/gateway");
        let mut text = fs::read_to_string(root.join(name)).expect("a snippet");
        for (old, new) in replaced {
            assert!(text.contains(old), "{name} has no {old}");
            text = text.replace(old, new);
        }
        // A busy machine must not make the gateway seem down.
        text = text.replace("2s", "10s").replace("timeout = 5000", "timeout = 30000");
        let at = |port: u16| format!("127.0.0.1:{port}");
        text.replace("127.0.0.1:8080", &at(self.gateway))
            .replace("127.0.0.1:3000", &at(self.application))
            .replace("listen 8000", &format!("listen {}", at(self.port)))
            .replace("bind :8000", &format!("bind {}", at(self.port)))
            .replace("http://:8000 {", &format!("http://:{} {{\n\tbind 127.0.0.1", self.port))
    }
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file");
    path
}

fn nginx(folder: &Path, ports: &Ports, replaced: Closing) -> Command {
    written(folder, "limits.conf", &ports.snippet("nginx.conf", replaced));
    let path = folder.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = kinds.map(|kind| format!("{kind}_temp_path {path}/{kind};"));
    let text = format!(
        "daemon off; pid {path}/pid; error_log stderr; events {{}} http {{ access_log off; {} \
         include {path}/limits.conf; }}",
        paths.join(" "),
    );
    let mut command = Command::new("nginx");
    command.args(["-e", "stderr", "-c"]).arg(written(folder, "nginx.conf", &text));
    command
}

fn caddy(folder: &Path, ports: &Ports, replaced: Closing) -> Command {
    let text = ports.snippet("Caddyfile", replaced).replacen("{\n", "{\n\tadmin off\n", 1);
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]);
    command.arg(written(folder, "Caddyfile", &text));
    command.env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
    command
}

fn haproxy(folder: &Path, ports: &Ports, replaced: Closing) -> Command {
    // Names of abstract sockets are those of the whole machine.
    let own = |text: String| text.replace("abns@limits", &format!("abns@limits-{}", ports.port));
    let lua = written(folder, "limits.lua", &own(ports.snippet("limits.lua", &[])));
    let text = own(ports.snippet("haproxy.cfg", replaced));
    let text = text.replace("/etc/haproxy/limits.lua", &lua.display().to_string());
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(written(folder, "haproxy.cfg", &text));
    command
}

fn free_port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("an address").port()
}

/// Starts an application, and returns its port.
async fn application() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream));
        }
    });
    port
}

/// Responds to one request.
async fn respond(mut stream: tokio::net::TcpStream) -> Option<()> {
    let mut read = String::new();
    let (head, length) = loop {
        let mut bytes = [0; 4_096];
        let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        read.push_str(&String::from_utf8_lossy(&bytes[..count]));
        if let Some((head, body)) = read.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let expected = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= expected.map_or(0, |text| text.parse().unwrap_or(0)) {
                break (head, body.len());
            }
        }
    };
    let request = head.lines().next()?.rsplit_once(' ')?.0;
    let body = format!("{request} {length}");
    let size = body.len();
    let text =
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.ok()
}
