//! Processes of a test. Each is ended by its id.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::net::TcpStream;

use crate::server::until;

/// A running program that listens on a port.
pub struct Program {
    command: Command,
    process: Child,
    pub port: u16,
    log: PathBuf,
}

impl Program {
    /// Starts a program, and waits until its port is open.
    pub async fn start(mut command: Command, port: u16, log: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("a log");
        let same = output.try_clone().expect("a log");
        command.stdin(Stdio::null()).stdout(output).stderr(same);
        let process = command.spawn().expect("a process");
        let program = Self { command, process, port, log: log.to_owned() };
        program.listens().await;
        program
    }

    /// Starts the ended program again, on its port.
    pub async fn begin(&mut self) {
        self.process = self.command.spawn().expect("a process");
        self.listens().await;
    }

    /// Sends SIGTERM, and waits until the program has ended by itself.
    pub async fn terminate(&mut self) {
        signal("TERM", self.process.id().into());
        let ended = async || self.process.try_wait().expect("a process").is_some();
        until("the program ends", ended).await;
        assert!(self.process.wait().expect("a process").success());
    }

    async fn listens(&self) {
        let connects = async || TcpStream::connect(("127.0.0.1", self.port)).await.is_ok();
        until("the program listens", connects).await;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.port, fs::read_to_string(&self.log).unwrap_or_default());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn signal(name: &str, process: u64) {
    let process = process.to_string();
    let kill = Command::new("sh").args(["-c", "kill -s \"$@\"", "kill", name, &process]).status();
    assert!(kill.expect("a shell").success());
}
