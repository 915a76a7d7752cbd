//! A gateway in a process of its own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::server::until;

pub const LIMITS: &str = "domain: api
http:
  descriptors:
    - {user: 'header:x-user'}
limits:
  - {match: {user: '*'}, rule: FIXED 5 1m}
";

pub fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_redis-throttle-gateway"));
    program.env_remove("REDIS_THROTTLE_SERVERS");
    program
}

/// A running gateway and the lines of its log. Its configuration is the folder `limits` with a link
/// to `api.yaml`.
pub struct Gateway {
    process: Child,
    pub folder: TempDir,
    /// The addresses of the greeting.
    pub addresses: Vec<String>,
    log: Arc<Mutex<Vec<Value>>>,
}

impl Gateway {
    /// Starts a gateway that listens on free ports.
    pub fn start(server: &str, words: &[&str]) -> Self {
        let both = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        Self::with(server, &[&both, words].concat(), &[])
    }

    /// Starts a gateway with other addresses.
    pub fn with(server: &str, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut gateway = Self::unread(server, words, variables);
        let (stderr, lines) = (gateway.process.stderr.take().unwrap(), gateway.log.clone());
        thread::spawn(move || collect(stderr, &lines));
        gateway
    }

    /// Starts a gateway whose log is not read.
    pub fn unread(server: &str, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limits = folder.path().join("limits");
        fs::create_dir(&limits).unwrap();
        fs::write(folder.path().join("api.yaml"), LIMITS).unwrap();
        symlink("../api.yaml", limits.join("api.yaml")).unwrap();
        let mut command = program();
        command.args(["--server", server, "--config"]).arg(limits).args(words);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let listed = line.trim_end().strip_prefix("redis-throttle-gateway listens on ");
        let addresses = listed.expect("a greeting").split(", ");
        let address = |named: &str| named.split(' ').next().unwrap().to_owned();
        let addresses = addresses.map(address).collect();
        Self { process, folder, addresses, log: Arc::default() }
    }

    pub fn grpc(&self) -> &str {
        &self.addresses[0]
    }

    pub fn http(&self) -> &str {
        &self.addresses[1]
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -s {name} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Returns the lines of the log.
    pub fn lines(&self) -> Vec<Value> {
        self.log.lock().unwrap().clone()
    }

    /// Returns the lines of an event.
    pub fn events(&self, name: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["event"] == name).collect()
    }

    /// Waits until an event was logged a number of times, and returns its last line.
    pub async fn event(&self, name: &str, times: usize) -> Value {
        until(name, async || self.events(name).len() >= times).await;
        self.events(name).pop().unwrap()
    }

    /// Waits for the end.
    pub async fn ended(&mut self) -> ExitStatus {
        until("the gateway ends", async || self.process.try_wait().unwrap().is_some()).await;
        self.process.wait().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Collects the lines of a log. The default form is JSON, because it is no terminal.
fn collect(stderr: ChildStderr, log: &Mutex<Vec<Value>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
        log.lock().unwrap().push(line);
    }
}
