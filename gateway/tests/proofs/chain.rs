//! Starts the chain of the example on free ports.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::Program;
use crate::server::{Server, free_port, until};
use crate::wire::{Response, get};

/// Texts of a file, each with its replacement.
pub type Edits = &'static [(&'static str, &'static str)];

/// Changes of the example.
#[derive(Default)]
pub struct Changes {
    pub envoy: Edits,
    pub limits: Edits,
    /// Further arguments of the gateway.
    pub arguments: &'static [&'static str],
}

/// Keeps the gateway from seeming down on a busy machine. The server decides every request, because
/// its clock may be frozen.
pub const PATIENT: Changes = Changes {
    envoy: &[("0.25s", "10s")],
    limits: &[],
    arguments: &["--timeout-ms", "1000", "--denial-cache", "0"],
};

/// The same for many requests.
pub const UNDER_LOAD: Changes = Changes { limits: &[("100 50 1", "1000000 1000000 1")], ..PATIENT };

/// A running chain.
pub struct Chain {
    pub redis: Server,
    pub gateways: Vec<Program>,
    pub envoy: Envoy,
    pub folder: TempDir,
}

impl Chain {
    /// Starts the chain; `None` without Envoy.
    pub async fn start(changes: Changes, gateways: usize) -> Option<Self> {
        let program = envoy_program()?;
        let redis = Server::start().await;
        let folder = TempDir::new().expect("a folder");
        fs::write(folder.path().join("limits.yaml"), example("limits.yaml", changes.limits))
            .expect("a file");
        let mut started = Vec::new();
        for _ in 0..gateways {
            started.push(gateway(&redis.url(), folder.path(), changes.arguments).await);
        }
        let ports: Vec<u16> = started.iter().map(|gateway| gateway.port).collect();
        let envoy = Envoy::start(&program, &ports, folder.path(), changes.envoy).await;
        Some(Self { redis, gateways: started, envoy, folder })
    }
}

/// Returns a file of the example with changes.
pub fn example(name: &str, edits: Edits) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/envoy");
    let mut text = fs::read_to_string(folder.join(name)).expect("an example");
    for (old, new) in edits {
        assert!(text.contains(old), "{name} has no {old}");
        text = text.replace(old, new);
    }
    text
}

/// Returns the path of Envoy; `None`, without CI, if it was not fetched.
pub fn envoy_program() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/envoy/envoy");
    if path.exists() {
        return Some(path);
    }
    let advice = "no Envoy: scripts/fetch-envoy.sh .cache/envoy";
    assert!(env::var_os("CI").is_none(), "{advice}");
    eprintln!("skipped: {advice}");
    None
}

async fn gateway(url: &str, folder: &Path, arguments: &[&str]) -> Program {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redis-throttle-gateway"));
    command.env_remove("REDIS_THROTTLE_SERVERS").args(["--server", url, "--config"]);
    command.arg(folder.join("limits.yaml")).args(["--grpc", &format!("127.0.0.1:{port}")]);
    command.args(arguments);
    Program::start(command, port, &folder.join(format!("gateway-{port}"))).await
}

/// A running Envoy.
pub struct Envoy {
    program: Program,
    admin: u16,
}

impl Envoy {
    pub async fn start(path: &Path, gateways: &[u16], folder: &Path, edits: Edits) -> Self {
        let [port, admin, application] = [free_port(), free_port(), free_port()];
        let at = |port: u16| format!("port_value: {port}}}");
        let mut text = example("envoy.yaml", edits);
        let endpoint = text.lines().find(|line| line.contains("port_value: 8081}"));
        let endpoint = endpoint.expect("an endpoint of the gateway").to_owned();
        let endpoints = gateways.iter().map(|port| endpoint.replace("8081", &port.to_string()));
        text = text.replace(&endpoint, &endpoints.collect::<Vec<_>>().join("\n"));
        for (old, new) in [(10_000, port), (9901, admin), (3000, application)] {
            assert!(text.contains(&at(old)), "envoy.yaml has no port {old}");
            text = text.replace(&at(old), &at(new));
        }
        let file = folder.join(format!("envoy-{port}.yaml"));
        fs::write(&file, text).expect("a file");
        let mut command = Command::new(path);
        command.args(["--disable-hot-restart", "--concurrency", "1", "-l", "warn", "-c"]);
        command.arg(&file);
        let log = folder.join(format!("envoy-{port}"));
        let program = Program::start(command, port, &log).await;
        let envoy = Self { program, admin };
        until("Envoy is ready", async || get(admin, "/ready", &[]).await.status == 200).await;
        envoy
    }

    /// Sends a request of a user.
    pub async fn get(&self, path: &str, user: &str) -> Response {
        get(self.program.port, path, &[("x-user", user)]).await
    }

    /// Sends a request of a user, whose response reports tokens.
    pub async fn report(&self, path: &str, user: &str, tokens: &str) -> Response {
        get(self.program.port, path, &[("x-user", user), ("x-tokens", tokens)]).await
    }

    pub fn port(&self) -> u16 {
        self.program.port
    }

    /// Returns a number of Envoy's statistics.
    pub async fn count(&self, name: &str) -> u64 {
        let target = format!("/stats?filter=^{}$", name.replace('.', "\\."));
        let statistics = get(self.admin, &target, &[]).await.body;
        let number =
            statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        number.map_or(0, |number| number.parse().expect("a number"))
    }

    /// Returns Envoy's statistics of the gateway.
    pub async fn counts(&self) -> String {
        get(self.admin, "/stats?usedonly&filter=gateway", &[]).await.body
    }

    /// Returns the number of requests for which Envoy got no decision.
    pub async fn undecided(&self) -> u64 {
        self.count("cluster.application.ratelimit.error").await
    }
}
