//! Measures a request to the gateway, compared with a bare tonic service that returns the same
//! response.
//!
//! `make bench-gateway` runs it and writes `docs/bench/gateway.md`. The services are processes of
//! their own, and take turns: the ratio is the median of the ratios within a round. `RL_MODULE` is
//! the module, `RL_SERVER` the server, `ROUNDS` the number of rounds.
//!
//! `load ADDRESS callers|rate NUMBER SECONDS` loads a gateway that runs, for `make bench-clients
//! ONLY=pressure`. It prints the requests, those without a response that allows them, and the
//! seconds.

mod bare;
mod load;
#[path = "../../clients/rust/redis-throttle-client/tests/live/server.rs"]
mod server;
#[path = "../server/table.rs"]
mod table;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use load::{Caller, Load, Measured};
use redis_throttle_client::Backend;
use table::{TSV_HEADING, Table, thousands};
use tokio::runtime::{self, Runtime};

const RATE: u32 = 5_000;
const LOADS: [Load; 2] = [Load::Rate(RATE), Load::Callers(64)];
/// Envoy opens one connection per worker thread.
const CONNECTIONS: usize = 4;
const SPAN: Duration = Duration::from_secs(4);
const WARM_UP: Duration = Duration::from_secs(1);
/// The unit of CPU times in `/proc`, on every Linux.
const TICK_US: f64 = 10_000.0;
const RATIO_MAX: f64 = 2.0;
const P99_MS_MAX: f64 = 10.0;
/// The share of requests without a response above which a service does not work. On a busy machine
/// some run out of time.
const FAILED_MAX: f64 = 0.5;
/// The page and its data, without their endings.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bench/gateway");
const CONFIGURATION: &str = "\
domain: api
limits:
  - match: {path: \"/search/*\", user: \"*\"}
    key: [user]
    rule: GCRA 1000000 1000000 1
    on_error: unavailable
";

/// A service in a process of its own.
struct Service {
    name: &'static str,
    process: Child,
    caller: Caller,
}

impl Service {
    async fn start(name: &'static str, command: &mut Command, address: SocketAddr) -> Self {
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let process = process.unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self { name, process, caller: Caller::open(address, CONNECTIONS).await }
    }

    /// Returns the CPU time of all threads so far, in microseconds.
    fn cpu_us(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.process.id());
        let stat = fs::read_to_string(path).expect("a running process");
        let (_, fields) = stat.rsplit_once(')').expect("the name of the program");
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks.map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() * TICK_US
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The figures of a job.
struct Figures {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    failed: f64,
}

impl Figures {
    fn of(measured: &Measured, cpu_us: f64) -> Self {
        let took = &measured.took;
        let requests = took.len() as f64;
        let percentile = |percent: usize| took[took.len() * percent / 100].as_nanos() as f64 / 1e3;
        Self {
            per_second: requests / measured.elapsed.as_secs_f64(),
            p50_us: percentile(50),
            p99_us: percentile(99),
            cpu_us: cpu_us / requests,
            failed: measured.failed as f64 / requests,
        }
    }
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let address = |at: usize| words[at].parse().expect("an address");
    if words.first().is_some_and(|word| word == "bare") {
        // Like the gateway, with the runtime's own number of threads.
        return Runtime::new().expect("threads").block_on(async {
            let response = Caller::open(address(1), 1).await.request().await;
            bare::serve(address(2), response.expect("the gateway's response")).await;
        });
    }
    if words.first().is_some_and(|word| word == "load") {
        let measured = load_gateway(address(1), &words[2], &words[3], &words[4]);
        let seconds = measured.elapsed.as_secs_f64();
        return println!("{} {} {seconds}", measured.took.len(), measured.failed);
    }
    let rounds = env::var("ROUNDS").ok().filter(|text| !text.is_empty());
    let rounds: usize = rounds.map_or(5, |text| text.parse().expect("ROUNDS is a number"));
    let busy = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = busy.split(' ').next().unwrap_or_default().to_owned();
    // One thread, so that the load leaves as much as possible of a small machine to the services.
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a thread");
    let folder = tempfile::tempdir().expect("a folder");
    let (server, services) = runtime.block_on(start_services(folder.path()));
    measure(&runtime, &services, WARM_UP);
    let all: Vec<_> = (1..=rounds.max(1))
        .map(|round| {
            eprintln!("round {round} of {rounds}");
            measure(&runtime, &services, SPAN)
        })
        .collect();
    let version: String = runtime.block_on(server.query(&["INFO", "server"])).expect("INFO");
    let [figures, bars] = results(&all);
    let results = format!("{}\n{}", figures.markdown(), bars.markdown());
    println!("{results}");
    let load = format!("{rounds}, each job {} s; load average before {busy}", SPAN.as_secs());
    let environment = environment(&version, load);
    let data = environment.tsv("environment") + &figures.tsv("figures") + &bars.tsv("bars");
    fs::write(format!("{PAGE}.tsv"), TSV_HEADING.to_owned() + &data).expect("the data");
    fs::write(format!("{PAGE}.md"), page(&environment.markdown(), &results)).expect("the page");
}

/// Loads a gateway.
fn load_gateway(address: SocketAddr, kind: &str, number: &str, seconds: &str) -> Measured {
    let number: u32 = number.parse().expect("a number");
    let load = match kind {
        "rate" => Load::Rate(number),
        _ => Load::Callers(number as usize),
    };
    let runtime = Runtime::new().expect("threads");
    let caller = runtime.block_on(Caller::open(address, CONNECTIONS));
    let span = Duration::from_secs(seconds.parse().expect("a number"));
    caller.run(runtime.handle(), load, span)
}

/// Starts the server, the gateway and the bare service.
async fn start_services(folder: &Path) -> (server::Server, [Service; 2]) {
    let file = folder.join("api.yaml");
    fs::write(&file, CONFIGURATION).expect("a file");
    let server = server::Server::of(Backend::Module, &[]).await;
    let (of_bare, of_gateway) = (free_address(), free_address());
    let mut command = Command::new(env!("CARGO_BIN_EXE_redis-throttle-gateway"));
    command.args(["--server", &server.url(), "--grpc", &of_gateway.to_string(), "--config"]);
    let gateway = Service::start("gateway", command.arg(file), of_gateway).await;
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["bare", &of_gateway.to_string(), &of_bare.to_string()]);
    let bare = Service::start("bare tonic service", &mut command, of_bare).await;
    (server, [bare, gateway])
}

fn free_address() -> SocketAddr {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    probe.local_addr().expect("an address")
}

/// Runs a round: for each load, the figures of each service.
fn measure(
    runtime: &Runtime,
    services: &[Service; 2],
    span: Duration,
) -> [[(&'static str, Figures); 2]; 2] {
    LOADS.map(|load| {
        services.each_ref().map(|service| {
            let before = service.cpu_us();
            let measured = service.caller.run(runtime.handle(), load, span);
            let figures = Figures::of(&measured, service.cpu_us() - before);
            let failed = figures.failed;
            assert!(failed <= FAILED_MAX, "{}: {:.1}% failed", service.name, failed * 100.0);
            (service.name, figures)
        })
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the table of the figures and the table of the bars.
fn results(rounds: &[[[(&'static str, Figures); 2]; 2]]) -> [Table; 2] {
    let mut table = Table::new(&[
        "load and service",
        "requests/s",
        "p50, us",
        "p99, us",
        "CPU per request, us",
        "without an answer",
    ]);
    for (at, load) in LOADS.iter().enumerate() {
        for service in 0..2 {
            let of = |value: fn(&Figures) -> f64| {
                median(rounds.iter().map(|round| value(&round[at][service].1)))
            };
            table.row(vec![
                match load {
                    Load::Rate(rate) => format!("{} per second", thousands(f64::from(*rate))),
                    Load::Callers(callers) => format!("{callers} callers"),
                } + ", "
                    + rounds[0][at][service].0,
                thousands(of(|one| one.per_second)),
                thousands(of(|one| one.p50_us)),
                thousands(of(|one| one.p99_us)),
                format!("{:.1}", of(|one| one.cpu_us)),
                format!("{:.2}%", of(|one| one.failed) * 100.0),
            ]);
        }
    }
    let ratio = |at: usize| {
        let ratio =
            |round: &[[(&str, Figures); 2]; 2]| round[at][1].1.cpu_us / round[at][0].1.cpu_us;
        median(rounds.iter().map(ratio))
    };
    let p99_ms = median(rounds.iter().map(|round| round[0][1].1.p99_us)) / 1e3;
    let mut bars = Table::new(&["figure", "value", "bar", ""]);
    let mut bar = |figure: &str, value: f64, most: Option<f64>| {
        bars.row(vec![
            figure.to_owned(),
            format!("{value:.2}"),
            most.map_or("-".to_owned(), |most| format!("<= {most:.2}")),
            most.map_or("", |most| if value <= most { "met" } else { "MISSED" }).to_owned(),
        ]);
    };
    bar(
        "CPU of the gateway at 5,000 per second, against the bare service",
        ratio(0),
        Some(RATIO_MAX),
    );
    bar("CPU of the gateway with 64 callers, against the bare service", ratio(1), None);
    bar("p99 of the gateway at 5,000 per second, ms", p99_ms, Some(P99_MS_MAX));
    [table, bars]
}

/// Returns the table of the machine and of the programs.
fn environment(info: &str, load: String) -> Table {
    let output = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        output.map_or("unknown".to_owned(), |output| {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        })
    };
    let line = |text: &str, name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map_or("unknown", |rest| rest.trim_start_matches([':', ' ', '\t'])).to_owned()
    };
    let cpu = line(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), "model name");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut table = Table::new(&["what", "which"]);
    let mut row = |what: &str, which: String| table.row(vec![what.to_owned(), which]);
    row("date", output("date", "+%Y-%m-%d"));
    row("gateway", format!("redis-throttle-gateway {}", env!("CARGO_PKG_VERSION")));
    row("server", format!("Redis {}, on 127.0.0.1", line(info, "redis_version")));
    row("CPU", format!("{cpu}, {cores} cores"));
    row("kernel", output("uname", "-r"));
    row("rounds", load);
    table
}

fn page(environment: &str, results: &str) -> String {
    format!(
        "# The gateway next to a bare service

`make bench-gateway` wrote this page. It sends Envoy's requests, each with one descriptor of two
entries, over {CONNECTIONS} HTTP/2 connections with a time-out of 250 ms. The gateway sends one
`RL.GCRA` for each and allows it, with its status and header fields. The bare service is tonic
alone: it returns a copy of one of these answers. The load, both services and the server share the
machine, and the services take turns.

Figures are medians of the rounds; a ratio is the median of the ratios within a round. CPU is the
user and system time of all threads of the service. With a rate, a request's time begins when it
was due, even if it was sent later.

{environment}
{results}"
    )
}
