//! The program.

use clap::Parser as _;
use redis_throttle_lab::arguments::{Arguments, Command, ServeArguments, one_line};
use redis_throttle_lab::page::serving::{Patience, Server};
use redis_throttle_lab::replay;
use std::io::Write as _;
use std::process::ExitCode;

/// The exit code for a mistake.
const MISTAKE: u8 = 2;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // The help and the version are no mistakes, and go to standard output.
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&format!("{}; see --help", one_line(&error))),
    };
    let done = match arguments.command {
        None => serve(&arguments.serve),
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
    ExitCode::from(MISTAKE)
}

/// Serves the page until the process ends.
fn serve(arguments: &ServeArguments) -> Result<(), String> {
    let server = Server::bind(&arguments.listen, Patience::default())?;
    let mut output = std::io::stdout();
    // A closed output is no reason to end.
    let _ = writeln!(output, "redis-throttle-lab: http://{}", server.address());
    let _ = output.flush();
    server.run().map(|never| match never {}).map_err(|error| format!("cannot serve: {error}"))
}
