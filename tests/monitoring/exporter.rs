//! The exporter as a separate process, which is stopped by its process id when dropped.

use crate::http;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::{collections::BTreeMap, env, path::PathBuf};
use tempfile::TempDir;

/// The exporter's timeout, in milliseconds, for a server that does not reply.
pub const TIMEOUT_MS: u64 = 700;

pub struct Exporter {
    child: Child,
    directory: TempDir,
    /// The address on which the exporter listens, as `host:port`.
    pub address: String,
    /// The line that the exporter printed when it was ready.
    pub greeting: String,
}

pub fn program() -> PathBuf {
    let program = env::var_os("RL_EXPORTER").expect("RL_EXPORTER names what make exporter builds");
    PathBuf::from(program).canonicalize().expect("the exporter")
}

impl Exporter {
    pub fn of_servers(urls: &[&str]) -> Self {
        let arguments: Vec<_> = urls.iter().flat_map(|url| ["--server", url]).collect();
        Self::start(&arguments, &[])
    }

    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let log = File::create(directory.path().join("log")).unwrap();
        let mut child = Command::new(program())
            .args(arguments)
            .args(["--listen", "127.0.0.1:0", "--timeout-ms", &TIMEOUT_MS.to_string()])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the exporter can be run");
        let mut greeting = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut greeting).expect("a line");
        let address = greeting.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("it did not start: {greeting}")).to_owned();
        Self { child, directory, address, greeting }
    }

    /// Returns the metrics page. Fails the test if the exporter responds with an error.
    pub fn page(&self) -> String {
        let response = http::get(&self.address, "/metrics");
        assert_eq!(response.status, 200, "{}", response.body);
        response.body
    }

    /// Returns the samples of the metrics page by name with labels.
    pub fn samples(&self) -> BTreeMap<String, f64> {
        let page = self.page();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        });
        samples.collect()
    }

    /// Returns for each server on the page whether it is up.
    pub fn up(&self) -> BTreeMap<String, bool> {
        let samples = self.samples().into_iter();
        let up = samples.filter_map(|(name, value)| {
            let server = name.strip_prefix("rl_up{server=\"")?.strip_suffix("\"}")?;
            Some((server.to_owned(), value == 1.0))
        });
        up.collect()
    }

    /// Returns the lines that the exporter printed after its greeting.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).expect("a log")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the exporter with arguments that it must refuse, checks its exit status, and returns its
/// message.
pub fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(program()).args(arguments).output().expect("the exporter can be run");
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8")
}
