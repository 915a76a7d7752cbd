//! A real server that a test starts, restarts and stops.
//!
//! Each server has a new directory with its own configuration file and listens on a Unix socket
//! there. It has a TCP port only if a test needs one (replicas). It is always stopped by the
//! process id with which it was started, even if the test fails.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::{env, thread};

use redis::ProtocolVersion;
use tempfile::TempDir;

use super::{Client, eventually, module};

/// The configuration of a server that is started with `start` or `try_start`.
#[derive(Debug, Clone)]
pub struct Setup {
    module: Option<PathBuf>,
    module_arguments: String,
    debug_commands: bool,
    tcp: bool,
    lines: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            module: Some(module::path().to_owned()),
            module_arguments: String::new(),
            debug_commands: true,
            tcp: false,
            lines: Vec::new(),
            environment: Vec::new(),
        }
    }
}

impl Setup {
    /// Loads another build of the module.
    pub fn module(mut self, path: &Path) -> Self {
        self.module = Some(path.to_owned());
        self
    }

    /// Does not load the module.
    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// Adds words after the module's path in the `loadmodule` line.
    pub fn module_arguments(mut self, arguments: &str) -> Self {
        self.module_arguments = arguments.to_owned();
        self
    }

    /// Leaves the debug commands disabled, as by default.
    pub fn without_debug_commands(mut self) -> Self {
        self.debug_commands = false;
        self
    }

    /// Adds a line of configuration.
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Adds a variable to the server's environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Also listens on a free TCP port.
    pub fn with_tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Starts the server. Returns its log as the error if it exits during the start.
    pub fn try_start(self) -> Result<Server, String> {
        let attempts = if self.tcp { 5 } else { 1 };
        let mut refusal = String::new();
        for _ in 0..attempts {
            match Server::launch_new(self.clone()) {
                Ok(server) => return Ok(server),
                Err(log) => refusal = log,
            }
        }
        Err(refusal)
    }

    /// Starts the server.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start; the message is its log.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    fn configuration(&self, port: u16) -> String {
        let mut text = String::from(
            "unixsocket socket\nunixsocketperm 700\nbind 127.0.0.1\ndaemonize no\nlogfile log\n\
             save \"\"\nappendonly no\nenable-module-command yes\nrepl-diskless-sync-delay 0\n",
        );
        writeln!(text, "port {port}").unwrap();
        if let Some(path) = &self.module {
            writeln!(text, "loadmodule {} {}", path.display(), self.module_arguments).unwrap();
            if self.debug_commands {
                text.push_str("rl.debug-commands yes\n");
            }
        }
        for line in &self.lines {
            writeln!(text, "{line}").unwrap();
        }
        text
    }
}

/// A running server, stopped on drop.
pub struct Server {
    setup: Setup,
    directory: TempDir,
    port: u16,
    /// The started process, and the process id of the server. They differ if `SERVER` is a script
    /// that does not `exec`.
    process: Option<(Child, u32)>,
}

impl Server {
    /// Starts a server with the module and with the debug commands enabled.
    pub fn start() -> Self {
        Setup::default().start()
    }

    pub fn setup() -> Setup {
        Setup::default()
    }

    fn launch_new(setup: Setup) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("rl-").tempdir().expect("a directory");
        let port = if setup.tcp { free_port() } else { 0 };
        let mut server = Self { setup, directory, port, process: None };
        server.launch()?;
        Ok(server)
    }

    /// Writes the configuration file and starts the server with it.
    fn launch(&mut self) -> Result<(), String> {
        fs::write(self.file("conf"), self.setup.configuration(self.port)).unwrap();
        self.launch_as_written()
    }

    fn launch_as_written(&mut self) -> Result<(), String> {
        let mut child = self.spawn();
        let pid = eventually("the server replies to PING or ends", || {
            if child.try_wait().expect("a child can be waited for").is_some() {
                return Some(None);
            }
            let mut client = Client::try_connect(&self.socket(), ProtocolVersion::RESP2).ok()?;
            client.try_ping().then(|| Some(client.info("server")["process_id"].clone()))
        });
        match pid {
            None => Err(self.log()),
            Some(pid) => {
                self.process = Some((child, pid.parse().expect("a process id")));
                Ok(())
            }
        }
    }

    fn spawn(&self) -> Child {
        let directory = self.directory.path();
        let console = File::create(directory.join("console")).unwrap();
        let binary = binary();
        Command::new(&binary)
            .arg("conf")
            .current_dir(directory)
            .envs(self.setup.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(console.try_clone().unwrap())
            .stderr(console)
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be run: {error}", binary.display()))
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Returns the path of a file in the server's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn port(&self) -> u16 {
        assert_ne!(self.port, 0, "this server was started without TCP");
        self.port
    }

    /// Opens a connection that speaks RESP2.
    pub fn client(&self) -> Client {
        Client::try_connect(&self.socket(), ProtocolVersion::RESP2).expect("a connection")
    }

    /// Opens a connection that speaks RESP3.
    pub fn client3(&self) -> Client {
        Client::try_connect(&self.socket(), ProtocolVersion::RESP3).expect("a connection")
    }

    /// Opens a connection that receives the replication stream.
    pub fn replication_stream(&self) -> super::ReplicationStream {
        super::ReplicationStream::open(&self.socket())
    }

    /// Returns everything that the server has logged and printed.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.file(name)).unwrap_or_default();
        let bytes = [read("console"), read("log")].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Kills the server: like a power cut, this saves and logs nothing.
    pub fn crash(&mut self) {
        if let Some((mut child, pid)) = self.process.take() {
            if pid != child.id() && matches!(child.try_wait(), Ok(None)) {
                send_signal("-9", &pid.to_string());
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until the server has ended by itself, and returns its exit status.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let (mut child, _) = self.process.take().expect("a started server");
        eventually("the server ends", || child.try_wait().expect("a child can be waited for"))
    }

    /// Kills the server if it runs, and starts it again in the same directory.
    pub fn start_again(&mut self) {
        self.crash();
        self.launch().unwrap_or_else(|log| panic!("the server did not start again:\n{log}"));
    }

    /// Kills the server if it runs, and starts it with the configuration file that CONFIG REWRITE
    /// wrote.
    pub fn start_again_as_written(&mut self) {
        self.crash();
        self.launch_as_written()
            .unwrap_or_else(|log| panic!("the server did not start again:\n{log}"));
    }

    /// Restarts the server with these lines, which make it load slowly, and waits until it
    /// reports that it is loading.
    pub fn start_again_loading(&mut self, lines: &[&str]) {
        self.crash();
        self.setup = lines.iter().fold(self.setup.clone(), |setup, line| setup.line(line));
        fs::write(self.file("conf"), self.setup.configuration(self.port)).unwrap();
        let child = self.spawn();
        // A server that is loading also reports its process id.
        let pid = eventually("the server loads", || {
            let mut client = Client::try_connect(&self.socket(), ProtocolVersion::RESP2).ok()?;
            let loads = client.info("persistence").get("loading").is_some_and(|is| is == "1");
            loads.then(|| client.info("server")["process_id"].clone())
        });
        self.process = Some((child, pid.parse().expect("a process id")));
    }

    /// Kills the server if it runs, and starts it with a changed configuration.
    pub fn start_again_as(&mut self, change: impl FnOnce(Setup) -> Setup) {
        self.setup = change(self.setup.clone());
        self.start_again();
    }

    /// Asserts that the server has neither died nor restarted since its start.
    pub fn assert_alive(&self) {
        let pid = self.client().info("server")["process_id"].clone();
        let (_, started_as) = self.process.as_ref().expect("a started server");
        assert_eq!(pid, started_as.to_string(), "the server is another process now");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash();
        if thread::panicking() {
            let log = self.log();
            let tail = log.lines().rev().take(40).collect::<Vec<_>>();
            eprintln!("--- the end of the server's log ---");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Sends a signal to a process. Returns true if there is such a process. The shell has the command:
/// the program `kill` is in a package that a minimal system lacks.
pub fn send_signal(signal: &str, pid: &str) -> bool {
    let kill = Command::new("sh").args(["-c", "kill \"$@\"", "kill", signal, pid]).status();
    kill.expect("a shell").success()
}

/// Returns the path of the server under test. It is absolute, because each server starts in its own
/// directory.
fn binary() -> PathBuf {
    let named = PathBuf::from(env::var_os("SERVER").unwrap_or_else(|| "redis-server".into()));
    if named.components().count() == 1 {
        return named;
    }
    named.canonicalize().unwrap_or_else(|error| panic!("SERVER={}: {error}", named.display()))
}

/// Returns a TCP port that is free now. If it is taken meanwhile, `try_start` tries another one.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
