//! Metrics of redis-throttle for Prometheus: whenever it is scraped, each server is asked for
//! `RL.METRICS`, and what they answer becomes one page.
//!
//! ```text
//! arguments ── addresses ──> scrape ──> server    one server, one connection, one command
//!                              │  └───> cluster   which servers a cluster has now
//! http ──── GET /metrics ──────┘  └───> page      the texts of several servers as one
//! ```

mod arguments;
mod cluster;
mod http;
mod page;
mod scrape;
mod server;

use arguments::{Arguments, Asked};
use scrape::Exporter;
use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok();
    match Arguments::parse(std::env::args().skip(1), variable) {
        Ok(Asked::Help) => print!("{}", arguments::HELP),
        Ok(Asked::Version) => println!("redis-throttle-exporter {}", env!("CARGO_PKG_VERSION")),
        Ok(Asked::Run(arguments)) => {
            if let Err(reason) = run(arguments) {
                return fail(&reason);
            }
        }
        Err(reason) => return fail(&reason),
    }
    ExitCode::SUCCESS
}

fn fail(reason: &str) -> ExitCode {
    eprintln!("redis-throttle-exporter: {reason}");
    ExitCode::from(2)
}

/// Serves until the process is ended.
fn run(arguments: Arguments) -> Result<(), String> {
    let listen = arguments.listen.clone();
    let exporter = Exporter::new(arguments)?;
    let listener = TcpListener::bind(&listen)
        .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    // With port 0 the system chooses one, and this line tells which.
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("redis-throttle-exporter listens on http://{address}/metrics");
    http::serve(&listener, move || exporter.scrape())
}
