//! The program.

use clap::Parser as _;
use redis_throttle_lab::arguments::{Arguments, Command, PageArguments, ServeArguments, one_line};
use redis_throttle_lab::page::serving::Patience;
use redis_throttle_lab::{page, replay, serve};
use std::io::Write as _;
use std::process::ExitCode;

/// The exit code for an error.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // The help and the version are no errors, and go to standard output.
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&format!("{}; see --help", one_line(&error))),
    };
    let done = match arguments.command {
        None => page(&arguments.page),
        Some(Command::Page(arguments)) => page(&arguments),
        Some(Command::Serve(arguments)) => serve(&arguments),
        Some(Command::Replay(arguments)) => return replay::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => fail(&reason),
    }
}

fn fail(reason: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "redis-throttle-lab: {reason}");
    ExitCode::from(ERROR)
}

/// Serves the page until the process ends.
fn page(arguments: &PageArguments) -> Result<(), String> {
    let server = page::serving::Server::bind(&arguments.listen, Patience::default())?;
    print(&format!("redis-throttle-lab: http://{}", server.address()));
    server.run().map(|never| match never {}).map_err(cannot_serve)
}

/// Serves the module's commands until the process ends.
fn serve(arguments: &ServeArguments) -> Result<(), String> {
    let server = serve::server::Server::bind(&arguments.listen)?;
    let address = server.address();
    print(&format!(
        "redis-throttle-lab: redis://{address}, try: redis-cli -h {} -p {} RL.GCRA user:42 6 10 60",
        address.ip(),
        address.port()
    ));
    server.run().map(|never| match never {}).map_err(cannot_serve)
}

fn print(line: &str) {
    let mut output = std::io::stdout();
    // A closed output is no reason to end.
    let _ = writeln!(output, "{line}");
    let _ = output.flush();
}

fn cannot_serve(error: std::io::Error) -> String {
    format!("cannot serve: {error}")
}
