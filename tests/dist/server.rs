//! A real server that a test starts, calls through `redis-cli` and stops.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(30);

/// Returns a port of 127.0.0.1 that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A running server, stopped on drop.
pub struct Server {
    process: Child,
    /// The arguments of `redis-cli` that name the port and the user.
    address: Vec<String>,
    _folder: TempDir,
}

impl Server {
    /// Starts a server whose configuration loads the module and has further lines.
    pub fn start(module: &Path, lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let text = format!(
            "bind 127.0.0.1\nport {port}\nsave \"\"\nloadmodule {}\n{lines}\n",
            module.display()
        );
        let file = folder.path().join("conf");
        fs::write(&file, text).expect("a configuration");
        let server = env::var("SERVER").unwrap_or("redis-server".to_owned());
        let mut command = Command::new(server);
        command.arg(file);
        Self::spawn(command, port, &[], folder)
    }

    /// Starts a server by a command, in a folder that is removed at the end. `user` are the
    /// arguments of `redis-cli` for a user that may call PING and SHUTDOWN.
    pub fn spawn(mut command: Command, port: u16, user: &[&str], folder: TempDir) -> Self {
        let log = folder.path().join("log");
        let output = fs::File::create(&log).expect("a log");
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(output.try_clone().expect("a log")).stderr(output);
        let process = command.spawn().expect("a server");
        let port = port.to_string();
        let address = ["-p", &port].into_iter().chain(user.iter().copied());
        let address = address.map(str::to_owned).collect();
        let mut server = Self { process, address, _folder: folder };
        let started = Instant::now();
        while server.call(&["PING"]) != "PONG\n" {
            let has_ended = server.process.try_wait().expect("a child can be waited for").is_some();
            let log = fs::read_to_string(&log).unwrap_or_default();
            assert!(!has_ended && started.elapsed() < DEADLINE, "the server does not reply: {log}");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Returns the port.
    pub fn port(&self) -> &str {
        &self.address[1]
    }

    /// Sends a command with `redis-cli`, and returns what it prints.
    pub fn call(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli").args(&self.address).args(words).output();
        String::from_utf8_lossy(&output.expect("redis-cli").stdout).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may be a script around the server, so the server itself has to end.
        self.call(&["SHUTDOWN", "NOSAVE"]);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
