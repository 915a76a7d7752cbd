//! The command line.

use crate::replay::arguments::ReplayArguments;
use clap::{Args, Parser, Subcommand};

/// See what a limit does before it is set: to traffic that you draw, and to the requests of a log.
///
/// Without a command, the program serves the page.
#[derive(Debug, Parser)]
#[command(name = "redis-throttle-lab", version, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// The command; serves the page if there is none.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The arguments of the page.
    #[command(flatten)]
    pub page: PageArguments,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the page
    Page(PageArguments),
    /// Serve the module's commands as a server with the module does, without a Redis
    ///
    /// Keys are in memory and end with the program. `RL.DEBUG CLOCK` stops and moves the clock.
    Serve(ServeArguments),
    /// Replay the requests of a log against limits, and report what they would have denied
    Replay(Box<ReplayArguments>),
}

/// The arguments of the page.
#[derive(Args, Debug)]
pub struct PageArguments {
    /// The address of the page, as host:port; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7780")]
    pub listen: String,
}

/// The arguments of the server.
#[derive(Args, Debug)]
pub struct ServeArguments {
    /// The address for clients, as host:port; port 0 picks a free one. There is no password
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7379")]
    pub listen: String,
}

/// Returns an error of the command line as one line, without the usage that follows it.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_the_page_unless_named() {
        for (line, expected) in [
            ("lab", "page 127.0.0.1:7780"),
            ("lab --listen 127.0.0.1:0", "page 127.0.0.1:0"),
            ("lab page", "page 127.0.0.1:7780"),
            ("lab page --listen [::1]:9", "page [::1]:9"),
            ("lab serve", "serve 127.0.0.1:7379"),
            ("lab serve --listen [::1]:9", "serve [::1]:9"),
        ] {
            let arguments = Arguments::try_parse_from(line.split(' ')).expect(line);
            let named = match arguments.command {
                None => format!("page {}", arguments.page.listen),
                Some(Command::Page(page)) => format!("page {}", page.listen),
                Some(Command::Serve(serve)) => format!("serve {}", serve.listen),
                Some(Command::Replay(_)) => panic!("{line} is not a replay"),
            };
            assert_eq!(named, expected, "{line}");
        }
    }

    #[test]
    fn invalid_argument_is_reported_in_one_line_without_the_usage() {
        for (line, expected) in [
            ("lab --listen", "a value is required for '--listen <ADDRESS>' but none was supplied"),
            ("lab --port 1", "unexpected argument '--port' found"),
            ("lab deal", "unrecognized subcommand 'deal'"),
        ] {
            let error = Arguments::try_parse_from(line.split(' ')).expect_err(line);
            assert_eq!(one_line(&error), expected, "{line}");
        }
    }
}
