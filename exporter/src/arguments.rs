//! The command line and environment of the exporter.

use clap::error::{ContextKind, ErrorKind};
use clap::{Error, Parser};
use redis::{ConnectionInfo, IntoConnectionInfo as _};
use std::error::Error as _;
use std::ffi::OsString;
use std::time::Duration;

/// The end of the output of `--help`.
const URLS: &str = "\
A URL is redis://[user:password@]host[:port], rediss:// with TLS, or redis+unix:///path?user=&pass=.
Every user of a machine can read command lines. To keep a password out of them, set the environment
variables REDIS_THROTTLE_SERVERS and REDIS_THROTTLE_CLUSTERS to URLs separated by blanks. To trust
an authority that the system does not know, set SSL_CERT_FILE to its certificate.";

/// The valid values of `--timeout-ms`.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

/// Metrics of redis-throttle for Prometheus: one scrape, one RL.METRICS on each server.
#[derive(Parser)]
#[command(name = "redis-throttle-exporter", version, after_help = URLS, args_override_self = true)]
pub struct Arguments {
    /// A server; may be given several times
    #[arg(long = "server", value_name = "URL", value_parser = server)]
    pub servers: Vec<ConnectionInfo>,
    /// Any node of a cluster: each scrape finds the others
    #[arg(long = "cluster", value_name = "URL", value_parser = cluster)]
    pub clusters: Vec<ConnectionInfo>,
    /// The address that serves GET /metrics and GET /healthz, as host:port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9877")]
    pub listen: String,
    /// The time for a reply to arrive and be parsed, 1 to 60000
    #[arg(long = "timeout-ms", value_name = "N", default_value = "2000", value_parser = timeout)]
    pub timeout: Duration,
}

/// The action that a command line requests.
pub enum Action {
    /// Print the help or the version.
    Print(String),
    /// Run the exporter.
    Run(Arguments),
}

impl Arguments {
    /// Reads a command line, which begins with the program's name, and environment variables
    /// through `variable`.
    ///
    /// # Errors
    ///
    /// Returns a line that says what is wrong. The line never contains a URL, because a URL may
    /// contain a password.
    pub fn read(
        words: impl Iterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Action, String> {
        let mut arguments = match Self::try_parse_from(words) {
            Ok(arguments) => arguments,
            Err(error) if !error.use_stderr() => return Ok(Action::Print(error.to_string())),
            Err(error) => return Err(refusal(&error)),
        };
        let urls = |name: &str| {
            let urls = utf8(name, variable(name).unwrap_or_default())?;
            let urls = urls.split_whitespace().map(|url| connection(name, url));
            urls.collect::<Result<Vec<_>, _>>()
        };
        arguments.servers.splice(..0, urls("REDIS_THROTTLE_SERVERS")?);
        arguments.clusters.splice(..0, urls("REDIS_THROTTLE_CLUSTERS")?);
        if arguments.servers.is_empty() && arguments.clusters.is_empty() {
            return Err("no server: name one with --server URL, or see --help".to_owned());
        }
        Ok(Action::Run(arguments))
    }
}

/// Returns the text of an error without the words of the command line.
fn refusal(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ValueValidation => {
            error.source().map_or_else(|| "an invalid value".to_owned(), ToString::to_string)
        }
        ErrorKind::InvalidUtf8 => "an argument is not valid UTF-8".to_owned(),
        ErrorKind::InvalidValue => {
            let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
            let argument = argument.unwrap_or_default();
            format!("{} needs a value", argument.split(' ').next().unwrap_or_default())
        }
        _ => "unknown argument: --help lists the known ones".to_owned(),
    }
}

fn utf8(source: &str, text: OsString) -> Result<String, String> {
    text.into_string().map_err(|_| format!("{source} is not valid UTF-8"))
}

fn server(url: &str) -> Result<ConnectionInfo, String> {
    connection("--server", url)
}

fn cluster(url: &str) -> Result<ConnectionInfo, String> {
    connection("--cluster", url)
}

/// Parses a URL with the `redis` crate.
fn connection(source: &str, url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info().map_err(|_| {
        format!(
            "{source} takes URLs: redis://[user:password@]host[:port], rediss:// or redis+unix://"
        )
    })
}

fn timeout(value: &str) -> Result<Duration, String> {
    let ms = value.parse().ok().filter(|ms| TIMEOUT_MS.contains(ms));
    ms.map(Duration::from_millis).ok_or_else(|| "--timeout-ms takes 1 to 60000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str, servers: Option<&str>) -> Result<Arguments, String> {
        let variable =
            |name: &str| servers.filter(|_| name == "REDIS_THROTTLE_SERVERS").map(OsString::from);
        let words = ["exporter"].into_iter().chain(line.split_whitespace());
        match Arguments::read(words.map(OsString::from), variable)? {
            Action::Run(arguments) => Ok(arguments),
            Action::Print(text) => Err(text),
        }
    }

    #[test]
    fn servers_come_from_the_command_line_and_from_the_environment() {
        let line = "--server redis://a:1 --cluster=rediss://b:2 --server redis://c \
                    --listen 0.0.0.0:80 --timeout-ms 150";
        let arguments = parse(line, Some(" redis://d:4\n redis://e ")).expect("all is well");
        let names = |infos: &[ConnectionInfo]| -> Vec<String> {
            infos.iter().map(|info| info.addr().to_string()).collect()
        };
        assert_eq!(names(&arguments.servers), ["d:4", "e:6379", "a:1", "c:6379"]);
        assert_eq!(names(&arguments.clusters), ["b:2"]);
        assert_eq!(arguments.listen, "0.0.0.0:80");
        assert_eq!(arguments.timeout, Duration::from_millis(150));
        let defaults = parse("--server redis://a", None).expect("one server is enough");
        assert_eq!(defaults.listen, "127.0.0.1:9877");
        let last = parse("--server redis://a --listen b:1 --listen c:2", None).expect("the last");
        assert_eq!(last.listen, "c:2");
    }

    #[test]
    fn help_and_version_are_printed() {
        let help = parse("--help", None).err().expect("the help");
        assert!(help.contains("--timeout-ms <N>") && help.ends_with("certificate.\n"), "{help}");
        let version = format!("redis-throttle-exporter {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(parse("-V", None).err(), Some(version));
    }

    #[test]
    fn parse_errors_name_the_fault_but_no_password() {
        let lines = [
            ("", "no server"),
            ("--server", "--server needs a value"),
            ("--server http://u:secret@a", "--server takes URLs"),
            ("--server u:secret@a", "--server takes URLs"),
            ("--cluster redis://u:secret@a:nine", "--cluster takes URLs"),
            ("--sever redis://u:secret@a", "unknown argument"),
            ("--sever=redis://u:secret@a", "unknown argument"),
            ("redis://u:secret@a", "unknown argument"),
            ("--server redis://a --timeout-ms 0", "--timeout-ms takes"),
            ("--server redis://a --timeout-ms 60001", "--timeout-ms takes"),
            ("--server redis://a --timeout-ms secret", "--timeout-ms takes"),
        ];
        for (line, expected) in lines {
            let reason = parse(line, None).err().expect(line);
            assert!(reason.starts_with(expected), "{line}: {reason}");
            assert!(!reason.contains("secret"), "{line}: {reason}");
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused_and_not_printed() {
        use std::os::unix::ffi::OsStringExt as _;
        let odd = || OsString::from_vec(b"redis://u:secret@a\xff".to_vec());
        let words = ["exporter".into(), "--server".into(), odd()].into_iter();
        let reason = Arguments::read(words, |_| None).err();
        assert_eq!(reason.as_deref(), Some("an argument is not valid UTF-8"));
        for name in ["REDIS_THROTTLE_SERVERS", "REDIS_THROTTLE_CLUSTERS"] {
            let words = ["exporter", "--server", "redis://a"].map(OsString::from).into_iter();
            let reason = Arguments::read(words, |requested| (requested == name).then(odd)).err();
            assert_eq!(reason, Some(format!("{name} is not valid UTF-8")));
        }
    }
}
