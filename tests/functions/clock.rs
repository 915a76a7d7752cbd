//! A clock that a test sets for the whole server: the module, the library and the expiry of keys
//! see the same time, even if it goes back.
//!
//! `RL.DEBUG CLOCK` is not sufficient: while it is frozen, the module lets keys live a day longer,
//! so their expiry cannot be compared.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use support::server::Setup;
use support::{Client, Server};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/functions/clock.c");

/// The clock that a server sees.
pub struct Clock {
    file: File,
    // Keeps the directory, because the server has the file open.
    _directory: TempDir,
}

impl Clock {
    /// Starts a server on a clock of its own, which shows the real time until it is set. Keys
    /// expire only when they are read, so that compared keys expire together.
    pub fn start(setup: Setup) -> (Server, Client, Self) {
        let directory = tempfile::Builder::new().prefix("rl-clock-").tempdir().expect("a folder");
        let path = directory.path().join("us");
        fs::write(&path, 0_i64.to_ne_bytes()).expect("a file");
        let file = File::options().write(true).open(&path).expect("the file");
        let server = setup
            .line("enable-debug-command yes")
            .environment("LD_PRELOAD", text_of(preload()))
            .environment("RL_TEST_CLOCK", text_of(&path))
            .start();
        let mut client = server.client();
        client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        (server, client, Self { file, _directory: directory })
    }

    /// Sets the time that the server sees from its next call on, in microseconds since the Unix
    /// epoch.
    pub fn set(&self, client: &mut Client, unix_us: i64) {
        self.file.write_all_at(&unix_us.to_ne_bytes(), 0).expect("the clock can be set");
        // Valkey 9 reads the time before it waits for input: without this PING, the next call would
        // still see the old time.
        assert!(client.try_ping());
    }
}

fn text_of(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Compiles the library that is loaded before the server's C library, once per test run.
fn preload() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let directory = tempfile::Builder::new().prefix("rl-clock-").tempdir().expect("a folder");
        let path = directory.path().join("clock.so");
        let status = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o", text_of(&path), SOURCE])
            .status()
            .expect("a C compiler, which also links this test");
        assert!(status.success(), "{SOURCE} does not compile");
        (directory, path)
    });
    path
}
