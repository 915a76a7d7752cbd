//! Metrics of redis-throttle for Prometheus: at each scrape, the exporter sends every server
//! `RL.METRICS` and joins the replies into one page.
//!
//! ```text
//! arguments ── addresses ──> scrape ──> server    one server, one connection, one command
//!                              │  ├───> cluster   which servers a cluster has now
//!                              │  ├───> deadline  the time to reply and to be parsed
//! http ──── GET /metrics ──────┘  └───> page      the texts of several servers as one
//! ```

mod arguments;
mod cluster;
mod deadline;
mod http;
mod log;
mod page;
mod scrape;
mod server;

use arguments::{Action, Arguments};
use scrape::Exporter;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Arguments::read(std::env::args_os(), |name| std::env::var_os(name)) {
        Ok(Action::Print(text)) => print(&text),
        Ok(Action::Run(arguments)) => {
            if let Err(reason) = run(arguments) {
                return fail(&reason);
            }
        }
        Err(reason) => return fail(&reason),
    }
    ExitCode::SUCCESS
}

/// Prints a text, and ignores a closed output.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn fail(reason: &str) -> ExitCode {
    log::write(&format!("redis-throttle-exporter: {reason}"));
    ExitCode::from(2)
}

/// Serves until the process is ended.
fn run(arguments: Arguments) -> Result<(), String> {
    let listen = arguments.listen.clone();
    let exporter = Exporter::new(arguments)?;
    let listener = TcpListener::bind(&listen)
        .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    // With port 0 the system chooses a port, which this line prints.
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    print(&format!("redis-throttle-exporter listens on http://{address}/metrics\n"));
    let ended = http::serve(listener, move || exporter.page());
    ended.map(|never| match never {}).map_err(|error| format!("cannot serve: {error}"))
}
