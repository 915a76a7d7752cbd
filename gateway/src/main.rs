//! The program: reads the arguments, serves, and ends on a signal.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use redis_throttle_client::redis::Client;
use redis_throttle_client::{Cluster, Limiter, Options, Server};
use redis_throttle_gateway::arguments::{Action, Arguments, HELP};
use redis_throttle_gateway::config::{Configuration, Remark};
use redis_throttle_gateway::log::{Level, event};
use redis_throttle_gateway::reload::Live;
use redis_throttle_gateway::server::Signals;
use redis_throttle_gateway::{log, samples, server};
use rustix::process::{Resource, getrlimit, setrlimit};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The calls that may wait for one server. Envoy sends many at once over few connections.
const IN_FLIGHT_MAX: usize = 4096;
/// The time at the end for tasks that wait for the system, such as for a name's address.
const ENDED_WITHIN: Duration = Duration::from_secs(1);

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
        Ok(Action::Check(arguments)) => print_lines(&arguments, |loaded, limiter| {
            Ok(samples::commands(loaded, limiter, arguments.tags))
        }),
        Ok(Action::PrintPolicies(arguments)) => print_lines(&arguments, samples::policies),
        Ok(Action::Run(arguments)) => return run(arguments),
        Err(reason) => Err(reason),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            print_error(&format!("redis-throttle-gateway: {reason}"));
            ExitCode::from(2)
        }
    }
}

/// Prints a text, and ignores a closed output.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn print_error(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn joined(remarks: &[Remark]) -> String {
    remarks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Prints lines on the configuration. Sends nothing.
fn print_lines(
    arguments: &Arguments,
    lines: impl Fn(&Configuration, &Limiter) -> Result<Vec<String>, String>,
) -> Result<(), String> {
    let loaded = Configuration::load(&arguments.config).map_err(|all| joined(&all))?;
    for warning in &loaded.warnings {
        print_error(&format!("{warning} (warning)"));
    }
    let nowhere = Client::open("redis://127.0.0.1").map_err(|error| error.to_string())?;
    let limiter = limiter(nowhere.into(), arguments)?;
    for line in lines(&loaded, &limiter)? {
        print(&format!("{line}\n"));
    }
    Ok(())
}

fn limiter(server: Server, arguments: &Arguments) -> Result<Limiter, String> {
    let options = Options::default()
        .timeout(arguments.timeout)
        .silence(arguments.silence)
        .max_in_flight(IN_FLIGHT_MAX)
        .prefix(arguments.prefix.as_str())
        .prefetch(arguments.prefetch)
        .denial_cache(arguments.denial_cache);
    Limiter::with_options(server, options).map_err(|error| error.to_string())
}

/// Returns the server or the cluster.
fn server(arguments: &Arguments) -> Result<Server, String> {
    let refused = |error: redis_throttle_client::redis::RedisError| format!("--server: {error}");
    match &arguments.servers[..] {
        [one] if !arguments.is_cluster => {
            Client::open(one.clone()).map(Server::from).map_err(refused)
        }
        nodes => Cluster::new(nodes.iter().cloned()).map(Server::from).map_err(refused),
    }
}

/// Serves. The reason for which the program ends is in its log.
fn run(arguments: Arguments) -> ExitCode {
    log::start(arguments.log);
    raise_open_files();
    let served = served(arguments);
    let code = match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            event(Level::Error, "failed").with("message", reason).write();
            ExitCode::from(2)
        }
    };
    log::flush();
    code
}

/// Raises the soft limit of open files to the hard one. Many systems start programs with 1,024,
/// which is less than the connections of one listener.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        event(Level::Warning, "open_files_not_raised").with("message", error).write();
    }
}

fn served(arguments: Arguments) -> Result<(), String> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(arguments.threads).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let result = runtime.block_on(async {
        let signals = Signals::install()?;
        let live = Live::load(arguments.config.clone()).map_err(|mistakes| {
            server::log_mistakes(&mistakes);
            "the configuration has mistakes"
        })?;
        let limiter = limiter(server(&arguments)?, &arguments)?;
        server::serve(arguments, signals, live, limiter).await
    });
    runtime.shutdown_timeout(ENDED_WITHIN);
    result
}
