//! A server under test. It runs alone on one core, is reached through a unix socket, and is ended
//! by its own process id.

use redis::{Client, Cmd, Connection, Value};
use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The core of the servers. The load generator uses the other core.
const CORE: &str = "0";

/// The maximum time to wait until a server has started, copied its primary or joined its cluster.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server binary and its name.
#[derive(Clone, Debug)]
pub struct Binary {
    pub name: String,
    pub path: PathBuf,
}

/// A running server, ended on drop.
pub struct Node {
    directory: TempDir,
    child: Child,
    pid: u32,
    /// The TCP port; 0 if the server listens only on its socket.
    pub port: u16,
    /// The command line that started the server.
    pub command_line: String,
}

impl Node {
    /// Starts a server with the module and further settings, each a name and a value.
    pub fn start(binary: &Binary, module: &Path, settings: &[&str], tcp: bool) -> Self {
        let directory = tempfile::Builder::new().prefix("rl-").tempdir().expect("a directory");
        let port = if tcp { free_port() } else { 0 };
        let mut words = vec!["--unixsocket".into(), "socket".into(), "--port".into()];
        words.extend([port.to_string(), "--save".into(), String::new()]);
        for setting in settings {
            let (name, value) = setting.split_once(' ').expect("a name and a value");
            words.extend([format!("--{name}"), value.into()]);
        }
        words.extend(["--loadmodule".into(), module.display().to_string()]);
        let child = Command::new("taskset")
            .args(["-c", CORE])
            .arg(&binary.path)
            .args(&words)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("taskset and the server can be run");
        let module_name = module.file_name().expect("a file").display();
        let line = words[..words.len() - 1].join(" ").replace("--save  ", "--save \"\" ");
        let command_line = format!("taskset -c {CORE} {} {line} {module_name}", binary.name);
        let mut node = Self { directory, child, pid: 0, port, command_line };
        let deadline = Instant::now() + PATIENCE;
        node.pid = loop {
            let pid = node.try_connect().and_then(|mut connection| {
                let info = Cmd::new().arg("INFO").arg("server").query::<String>(&mut connection);
                let info = info.ok()?;
                field(&info, "process_id").parse().ok()
            });
            if let Some(pid) = pid {
                break pid;
            }
            assert!(Instant::now() < deadline, "{} does not start", node.command_line);
            std::thread::yield_now();
        };
        node
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn try_connect(&self) -> Option<Connection> {
        let address = format!("unix://{}", self.socket().display());
        Client::open(address).ok()?.get_connection().ok()
    }

    /// Opens a connection.
    pub fn connect(&self) -> Connection {
        self.try_connect().expect("a running server accepts a connection")
    }

    /// Runs one command.
    pub fn run(&self, words: &[&str]) -> Value {
        let line = words.join(" ");
        command_of(words)
            .query(&mut self.connect())
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Returns a section of `INFO` as fields and values.
    pub fn info(&self, section: &str) -> HashMap<String, String> {
        let mut connection = self.connect();
        let text: String =
            Cmd::new().arg("INFO").arg(section).query(&mut connection).expect("INFO replies");
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    }

    /// Returns the number of keys.
    pub fn count_keys(&self) -> u64 {
        match self.run(&["DBSIZE"]) {
            Value::Int(count) => count.unsigned_abs(),
            other => panic!("DBSIZE: {other:?}"),
        }
    }

    /// Returns the bytes in use.
    pub fn used_memory(&self) -> u64 {
        self.info("memory")["used_memory"].parse().expect("a number")
    }

    /// Returns the CPU time that the server's main thread has used, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid))
            .expect("the kernel keeps scheduler statistics");
        let ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number");
        ns / 1_000.0
    }

    /// Waits until a field of `INFO` has this value.
    pub fn wait_for(&self, section: &str, name: &str, value: &str) {
        self.wait_until(name, || self.info(section).get(name).is_some_and(|found| found == value));
    }

    /// Waits until a field of `INFO` is at least `value`.
    pub fn wait_for_at_least(&self, section: &str, name: &str, value: u64) {
        let reached = |found: &String| found.parse::<u64>().is_ok_and(|found| found >= value);
        self.wait_until(name, || self.info(section).get(name).is_some_and(reached));
    }

    /// Waits until a cluster of this number of nodes serves all slots.
    pub fn wait_for_cluster(&self, nodes: usize) {
        let known = format!("cluster_known_nodes:{nodes}\r");
        self.wait_until("the cluster", || match self.run(&["CLUSTER", "INFO"]) {
            Value::BulkString(text) => {
                let text = String::from_utf8_lossy(&text);
                text.contains("cluster_state:ok") && text.contains(&known)
            }
            _ => false,
        });
    }

    fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "{what}: waited for in vain");
            std::thread::yield_now();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The server is not the child process itself if the binary is a script that starts the
        // server without exec. So the server is ended by its own process id.
        let _ = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
        let _ = self.child.wait();
    }
}

/// Builds a command of these words.
pub fn command_of(words: &[impl AsRef<str>]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command
}

/// Returns the value of a field in a text of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.into_iter().find(|(found, _)| *found == name).map_or("", |(_, value)| value.trim())
}

/// Finds a free port below 50,000, because the cluster bus uses the port number plus 10,000.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        if port < 50_000 {
            return port;
        }
    }
}
