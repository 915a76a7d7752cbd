//! The program: reads the arguments, serves, and ends on a signal.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use redis_throttle_client::redis::Client;
use redis_throttle_client::{Cluster, Limiter, Options, Server, prometheus};
use redis_throttle_gateway::arguments::{Action, Arguments, HELP};
use redis_throttle_gateway::config::{Configuration, Domain, Remark};
use redis_throttle_gateway::deciding::Decider;
use redis_throttle_gateway::metrics::Metrics;
use redis_throttle_gateway::samples;
use redis_throttle_gateway::watching::Live;
use redis_throttle_gateway::{grpc, http};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The calls that may wait for one server. Envoy sends many at once over few connections.
const IN_FLIGHT_MAX: usize = 4096;
/// The time for the last calls to end.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

/// The services that run.
type Serving = JoinSet<Result<(), String>>;

fn main() -> ExitCode {
    let action = Arguments::parse(std::env::args_os().skip(1), |name| std::env::var_os(name));
    let done = match action {
        Ok(Action::Help) => {
            print(HELP);
            Ok(())
        }
        Ok(Action::Version) => {
            print(&format!("redis-throttle-gateway {VERSION}\n"));
            Ok(())
        }
        Ok(Action::Check(arguments)) => shown(&arguments, samples::commands),
        Ok(Action::PrintPolicies(arguments)) => shown(&arguments, samples::policies),
        Ok(Action::Run(arguments)) => run(arguments),
        Err(reason) => Err(reason),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            say(&format!("redis-throttle-gateway: {reason}"));
            ExitCode::from(2)
        }
    }
}

/// Prints a text, and ignores a closed output.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn joined(remarks: &[Remark]) -> String {
    remarks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn warn(loaded: &Configuration) {
    for warning in &loaded.warnings {
        say(&format!("{warning} (warning)"));
    }
}

/// Prints lines for each domain. Sends nothing.
fn shown(arguments: &Arguments, lines: fn(&Domain, &Limiter) -> Vec<String>) -> Result<(), String> {
    let loaded = Configuration::load(&arguments.config).map_err(|all| joined(&all))?;
    warn(&loaded);
    let nowhere = Client::open("redis://127.0.0.1").map_err(|error| error.to_string())?;
    let limiter = limiter(nowhere.into(), arguments)?;
    for line in loaded.domains().flat_map(|domain| lines(domain, &limiter)) {
        print(&format!("{line}\n"));
    }
    Ok(())
}

fn limiter(server: Server, arguments: &Arguments) -> Result<Limiter, String> {
    let options = Options::default()
        .timeout(arguments.timeout)
        .max_in_flight(IN_FLIGHT_MAX)
        .prefix(arguments.prefix.as_str())
        .prefetch(arguments.prefetch)
        .denial_cache(arguments.denial_cache);
    Limiter::with_options(server, options).map_err(|error| error.to_string())
}

/// Returns the server, or the cluster if there are several.
fn server(arguments: &Arguments) -> Result<Server, String> {
    let refused = |error: redis_throttle_client::redis::RedisError| format!("--server: {error}");
    match &arguments.servers[..] {
        [one] => Client::open(one.clone()).map(Server::from).map_err(refused),
        nodes => Cluster::new(nodes.iter().cloned()).map(Server::from).map_err(refused),
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let live = Live::load(arguments.config.clone()).map_err(|all| joined(&all))?;
    warn(&live.current());
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(served(arguments, live))
}

/// Serves until a signal, then finishes the calls that have begun.
async fn served(arguments: Arguments, live: Live) -> Result<(), String> {
    let limiter = limiter(server(&arguments)?, &arguments)?;
    let mut registry = Registry::default();
    prometheus::metrics(&limiter, &mut registry);
    let metrics = Arc::new(Metrics::new(registry));
    let is_cluster = arguments.servers.len() > 1;
    let decider = Decider::new(limiter.clone(), arguments.timeout, arguments.tags, is_cluster);
    let listeners = Listeners::bind(&arguments).await?;
    let [terminate, interrupt, hang_up] =
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let said = |error: std::io::Error| format!("cannot wait for signals: {error}");
    let ended = ended(terminate.map_err(said)?, interrupt.map_err(said)?);
    follow(live.clone(), metrics.clone(), hang_up.map_err(said)?);
    greet(limiter.clone());
    print(&format!("redis-throttle-gateway listens on {}\n", listeners.addresses()?));
    let (stop, stopped) = watch::channel(false);
    let mut serving = listeners.serve(&live, &decider, &metrics, &stopped);
    let result = tokio::select! {
        () = ended => Ok(()),
        result = first_failure(&mut serving) => result,
    };
    let _ = stop.send(true);
    let result = result.and(drained(&mut serving).await);
    limiter.close().await;
    result
}

/// The sockets on which the gateway listens.
struct Listeners {
    grpc: Option<TcpListener>,
    http: Option<TcpListener>,
}

impl Listeners {
    async fn bind(arguments: &Arguments) -> Result<Self, String> {
        let grpc = bound("--grpc", arguments.grpc).await?;
        Ok(Self { grpc, http: bound("--http", arguments.http).await? })
    }

    /// Returns the addresses, with the ports that the system has chosen.
    fn addresses(&self) -> Result<String, String> {
        let named = [(&self.grpc, "gRPC"), (&self.http, "HTTP")];
        let all = named.into_iter().filter_map(|(listener, name)| Some((listener.as_ref()?, name)));
        let all = all.map(|(listener, name)| {
            let address = listener.local_addr().map_err(|error| error.to_string())?;
            Ok(format!("{address} ({name})"))
        });
        Ok(all.collect::<Result<Vec<_>, String>>()?.join(", "))
    }

    /// Starts the services. Each ends after `stopped`, when its last call has ended.
    fn serve(
        self,
        live: &Live,
        decider: &Decider,
        metrics: &Arc<Metrics>,
        stopped: &watch::Receiver<bool>,
    ) -> Serving {
        let mut serving = Serving::new();
        let parts = || (live.clone(), decider.clone(), metrics.clone());
        if let Some(listener) = self.grpc {
            let (live, decider, metrics) = parts();
            let service = grpc::Service::new(live, decider, metrics);
            let mut stopped = stopped.clone();
            let stop = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            let served = grpc::serve(listener, service, stop);
            serving.spawn(async { served.await.map_err(|error| error.to_string()) });
        }
        if let Some(listener) = self.http {
            let (live, decider, metrics) = parts();
            let served =
                http::serve(listener, http::Service::new(live, decider, metrics), stopped.clone());
            serving.spawn(async {
                served.await;
                Ok(())
            });
        }
        serving
    }
}

async fn bound(name: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, String> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    listener.map(Some).map_err(|error| format!("{name}: cannot listen on {address}: {error}"))
}

/// Waits until a service fails, or until all have ended.
async fn first_failure(serving: &mut Serving) -> Result<(), String> {
    while let Some(served) = serving.join_next().await {
        served.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Waits for the last calls.
async fn drained(serving: &mut Serving) -> Result<(), String> {
    let ended = tokio::time::timeout(DRAINED_WITHIN, first_failure(serving)).await;
    ended.unwrap_or_else(|_| {
        say("some calls did not end in time");
        Ok(())
    })
}

async fn ended(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Reads the configuration again on SIGHUP and on changes.
fn follow(live: Live, metrics: Arc<Metrics>, mut hang_up: Signal) {
    let asked = Arc::new(Notify::new());
    let hung_up = asked.clone();
    tokio::spawn(async move {
        while hang_up.recv().await.is_some() {
            hung_up.notify_one();
        }
    });
    tokio::spawn(async move {
        let followed = live.follow(asked, |loaded| {
            metrics.reloaded(loaded.is_ok());
            match loaded {
                Ok(loaded) => {
                    warn(&loaded);
                    say("the configuration was read again");
                }
                Err(mistakes) => {
                    say(&joined(&mistakes));
                    say("the old configuration stays in force");
                }
            }
        });
        if let Err(error) = followed.await {
            say(&format!("the files of the configuration cannot be watched: {error}"));
        }
    });
}

/// Opens the first connection, and says if the server does not answer.
fn greet(limiter: Limiter) {
    tokio::spawn(async move {
        if let Err(error) = limiter.ready().await {
            say(&format!("the server gives no answer yet: {error}"));
        }
    });
}
