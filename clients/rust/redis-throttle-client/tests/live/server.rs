//! Starts and stops real servers by their process ids: with the module, or configured for its
//! function library or script, depending on `$RL_BACKEND`.

// Several test programs include this file, and each uses a part of it.
#![allow(dead_code)]

use std::env;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};
use redis_throttle_client::Backend;
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// The time at which the clock is frozen, in Unix microseconds.
const START_US: i64 = 1_700_000_000_000_000;

/// Returns the back end under test: `$RL_BACKEND`, or the module.
pub fn backend() -> Backend {
    env::var("RL_BACKEND").map_or(Backend::Module, |name| name.parse().expect("RL_BACKEND"))
}

pub fn root() -> PathBuf {
    let of_package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |folder: &&Path| folder.join("ARCHITECTURE.md").exists();
    of_package.ancestors().find(is_root).expect("the repository").to_owned()
}

/// Returns the path of the module: `$RL_MODULE`, or the one that `make` has built.
pub fn module() -> PathBuf {
    let built = || root().join("target/release/libredis_throttle.so");
    let module = env::var_os("RL_MODULE").map_or_else(built, PathBuf::from);
    assert!(module.exists(), "no module at {}: see RL_MODULE", module.display());
    module
}

/// Returns the server program: `$RL_SERVER`, the newest fetched one, or the installed one.
fn program() -> PathBuf {
    if let Some(named) = env::var_os("RL_SERVER") {
        return named.into();
    }
    let fetched = std::fs::read_dir(root().join(".cache/servers")).into_iter().flatten().flatten();
    let servers = fetched.map(|entry| entry.path().join("server")).filter(|path| path.exists());
    servers.max().unwrap_or_else(|| "redis-server".into())
}

/// Compiles, once, a library that is preloaded into the server and gives it the test's time.
fn clock_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let draft = folder.join(format!("clock-{}.so", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&draft);
        let compiled = compiler.arg(root().join("tests/functions/clock.c")).arg("-ldl").status();
        assert!(compiled.expect("a C compiler").success());
        let library = folder.join("clock.so");
        std::fs::rename(draft, &library).expect("a file");
        library
    })
}

/// Finds a free port below 55,000: the cluster bus uses the port 10,000 above.
pub fn free_port() -> u16 {
    loop {
        let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = probe.local_addr().expect("an address").port();
        if port < 55_000 {
            return port;
        }
    }
}

/// Returns the server options that a back end needs.
fn needed(backend: Backend) -> Vec<String> {
    let renamed = ["FCALL", "FCALL_RO", "FUNCTION"].map(|name| ["--rename-command", name, ""]);
    let path = module();
    let loaded = ["--loadmodule", path.to_str().expect("a path"), "--rl.debug-commands", "yes"];
    let options = match backend {
        Backend::Functions => &[][..],
        Backend::Script => renamed.as_flattened(),
        _ => &loaded,
    };
    options.iter().copied().map(str::to_owned).collect()
}

/// A server on 127.0.0.1.
pub struct Server {
    pub port: u16,
    folder: TempDir,
    options: Vec<String>,
    process: Option<Child>,
    /// The file with the time that a server without the module sees.
    clock: Option<File>,
}

impl Server {
    /// Starts a server with a clock that a test may freeze.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    pub async fn with(options: &[&str]) -> Self {
        Self::of(backend(), options).await
    }

    /// Starts a cluster of one node, which has all slots.
    pub async fn cluster_of_one() -> Self {
        let server = Self::with(&["--cluster-enabled", "yes"]).await;
        server.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        until("the cluster is whole", async || {
            let info: String = server.query(&["CLUSTER", "INFO"]).await.expect("a reply");
            info.contains("cluster_state:ok")
        })
        .await;
        server
    }

    /// Starts a server without the module.
    pub async fn plain(options: &[&str]) -> Self {
        Self::of(Backend::Functions, options).await
    }

    /// Starts a server for which `backend` is the first available one. For the script, functions
    /// are disabled, as on an older server.
    pub async fn of(backend: Backend, options: &[&str]) -> Self {
        let options = options.iter().copied().map(str::to_owned).chain(needed(backend)).collect();
        let folder = TempDir::new().expect("a folder");
        let clock = (backend != Backend::Module).then(|| {
            let file = File::options().read(true).write(true).create(true).to_owned();
            file.open(folder.path().join("clock")).expect("a clock")
        });
        let mut server = Self { port: free_port(), folder, options, process: None, clock };
        server.begin().await;
        server
    }

    /// Restarts the stopped server on the same port, configured for another back end.
    pub async fn become_one_of(&mut self, backend: Backend) {
        self.options = needed(backend);
        self.begin().await;
    }

    /// Starts the server, without data, on its port.
    pub async fn begin(&mut self) {
        let log = File::create(self.folder.path().join("log")).expect("a log");
        let mut command = Command::new(program());
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--enable-debug-command", "yes"]);
        if let Some(clock) = &self.clock {
            clock.write_all_at(&0_i64.to_ne_bytes(), 0).expect("a clock");
            command.env("LD_PRELOAD", clock_library());
            command.env("RL_TEST_CLOCK", self.folder.path().join("clock"));
        }
        command.arg("--port").arg(self.port.to_string());
        command.arg("--dir").arg(self.folder.path()).args(&self.options);
        command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("a server"));
        let port = self.port;
        until("the server replies", async || ping(port).await.is_ok()).await;
    }

    /// Stops the server and waits for its exit.
    pub fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Sends a signal to the process, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("a server").id().to_string();
        let sent = Command::new("kill").arg(format!("-{name}")).arg(id).status();
        assert!(sent.expect("kill").success());
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns a client for this server.
    pub fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("a client")
    }

    pub async fn connect(&self) -> MultiplexedConnection {
        // The driver's own timeouts are not under test.
        let patient = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        let client = self.client();
        client.get_multiplexed_async_connection_with_config(&patient).await.expect("a connection")
    }

    /// Blocks the server for two seconds from now on. The returned task then ends.
    pub async fn hang(&self) -> JoinHandle<RedisResult<()>> {
        let (other, mut sleeping) = (self.connect().await, self.connect().await);
        let mut sleep = redis::cmd("DEBUG");
        sleep.arg("SLEEP").arg("2");
        let slept = tokio::spawn(async move { sleep.exec_async(&mut sleeping).await });
        // The server is blocked when another client gets no reply within 50 ms.
        let hangs = async || {
            let (mut other, ping) = (other.clone(), redis::cmd("PING"));
            let pong = ping.exec_async(&mut other);
            tokio::time::timeout(Duration::from_millis(50), pong).await.is_err()
        };
        until("the server hangs", hangs).await;
        slept
    }

    /// Sends a command and returns the reply.
    pub async fn query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query_async(&mut self.connect().await).await
    }

    pub async fn run(&self, words: &[&str]) {
        let _: redis::Value = self.query(words).await.expect("a reply");
    }

    /// Deletes all data and freezes the clock.
    pub async fn freeze(&self) {
        self.run(&["FLUSHALL"]).await;
        self.freeze_at(START_US).await;
    }

    /// Freezes the clock at a Unix time in microseconds.
    pub async fn freeze_at(&self, us: i64) {
        match &self.clock {
            Some(clock) => self.set_clock(clock, us).await,
            None => self.run(&["RL.DEBUG", "CLOCK", "FREEZE", &us.to_string()]).await,
        }
    }

    /// Moves a frozen clock.
    pub async fn advance(&self, span: Duration) {
        let us = span.as_micros();
        match &self.clock {
            Some(clock) => {
                let mut bytes = [0; 8];
                clock.read_exact_at(&mut bytes, 0).expect("a clock");
                let us = i64::try_from(us).expect("a span");
                self.set_clock(clock, i64::from_ne_bytes(bytes) + us).await;
            }
            None => self.run(&["RL.DEBUG", "CLOCK", "ADVANCE", &format!("{}ms", us / 1000)]).await,
        }
    }

    async fn set_clock(&self, clock: &File, us: i64) {
        clock.write_all_at(&us.to_ne_bytes(), 0).expect("a clock");
        // Valkey 9 reads the clock before it waits for the next command.
        self.run(&["PING"]).await;
    }

    /// Returns a number of `INFO`, or 0.
    pub async fn info(&self, section: &str, name: &str) -> u64 {
        let info: String = self.query(&["INFO", section]).await.expect("INFO");
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.map(|line| line.split(['=', ',']).find_map(|part| part.parse().ok()));
        number.flatten().unwrap_or(0)
    }

    /// Counts the calls of one of the module's commands, or of its equivalent in the library.
    pub async fn decided(&self, command: &str) -> u64 {
        match backend() {
            Backend::Functions => self.calls("fcall").await,
            Backend::Script => self.calls("evalsha").await,
            _ => self.calls(command).await,
        }
    }

    /// Counts the calls of a command.
    pub async fn calls(&self, command: &str) -> u64 {
        self.info("commandstats", &format!("cmdstat_{command}")).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

async fn ping(port: u16) -> RedisResult<()> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    redis::cmd("PING").exec_async(&mut connection).await
}

/// Polls until the condition holds; fails after a minute, which a busy machine may need.
pub async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !done().await {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
