//! The command line and environment of the exporter.

use redis::{ConnectionInfo, IntoConnectionInfo as _};
use std::ffi::OsString;
use std::time::Duration;

/// The output of `--help`.
pub const HELP: &str = "\
Metrics of redis-throttle for Prometheus: one scrape, one RL.METRICS on each server.

Usage: redis-throttle-exporter --server URL ... [--cluster URL ...] [--listen ADDRESS]

  --server URL       a server; may be given several times
  --cluster URL      any node of a cluster: each scrape finds the others
  --listen ADDRESS   the address that answers GET /metrics and GET /healthz (default 127.0.0.1:9877)
  --timeout-ms N     time for an answer to arrive and be parsed, 1 to 60000 (default 2000)
  --help, --version

A URL is redis://[user:password@]host[:port], rediss:// with TLS, or redis+unix:///path?user=&pass=.
Every user of a machine can read command lines. To keep a password out of them, set the environment
variables REDIS_THROTTLE_SERVERS and REDIS_THROTTLE_CLUSTERS to URLs separated by blanks. To trust
an authority that the system does not know, set SSL_CERT_FILE to its certificate.
";

/// The valid values of `--timeout-ms`.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

/// The servers to ask, and the address to listen on.
pub struct Arguments {
    /// Single servers.
    pub servers: Vec<ConnectionInfo>,
    /// One node of each cluster.
    pub clusters: Vec<ConnectionInfo>,
    /// The address to listen on, as `host:port`.
    pub listen: String,
    /// The time for the answer of a server to arrive and be parsed.
    pub timeout: Duration,
}

/// The action that a command line requests.
pub enum Asked {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Run the exporter.
    Run(Arguments),
}

impl Arguments {
    /// Reads the words of a command line, and environment variables through `variable`.
    ///
    /// # Errors
    ///
    /// Returns a line that says what is wrong. The line never contains a URL, because a URL may
    /// contain a password.
    pub fn parse(
        words: impl Iterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Asked, String> {
        let mut arguments = Self {
            servers: Vec::new(),
            clusters: Vec::new(),
            listen: "127.0.0.1:9877".to_owned(),
            timeout: Duration::from_millis(2000),
        };
        let urls = |name: &str| utf8(name, variable(name).unwrap_or_default());
        for url in urls("REDIS_THROTTLE_SERVERS")?.split_whitespace() {
            arguments.servers.push(connection("REDIS_THROTTLE_SERVERS", url)?);
        }
        for url in urls("REDIS_THROTTLE_CLUSTERS")?.split_whitespace() {
            arguments.clusters.push(connection("REDIS_THROTTLE_CLUSTERS", url)?);
        }
        let words = words.map(|word| utf8("an argument", word)).collect::<Result<Vec<_>, _>>()?;
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let (name, mut value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let mut value = || {
                let value = value.take().or_else(|| words.next());
                value.ok_or_else(|| format!("{name} needs a value"))
            };
            match name.as_str() {
                "--server" => arguments.servers.push(connection("--server", &value()?)?),
                "--cluster" => arguments.clusters.push(connection("--cluster", &value()?)?),
                "--listen" => arguments.listen = value()?,
                "--timeout-ms" => arguments.timeout = timeout(&value()?)?,
                "--help" | "-h" => return Ok(Asked::Help),
                "--version" | "-V" => return Ok(Asked::Version),
                _ => return Err("unknown argument: --help lists the known ones".to_owned()),
            }
        }
        if arguments.servers.is_empty() && arguments.clusters.is_empty() {
            return Err("no server: name one with --server URL, or see --help".to_owned());
        }
        Ok(Asked::Run(arguments))
    }
}

fn utf8(source: &str, text: OsString) -> Result<String, String> {
    text.into_string().map_err(|_| format!("{source} is not valid UTF-8"))
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
        let asked = Arguments::parse(line.split_whitespace().map(OsString::from), variable)?;
        match asked {
            Asked::Run(arguments) => Ok(arguments),
            Asked::Help | Asked::Version => Err("nothing to run".to_owned()),
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
    fn parse_refuses_text_that_is_not_utf_8_and_does_not_show_it() {
        use std::os::unix::ffi::OsStringExt as _;
        let odd = || OsString::from_vec(b"redis://u:secret@a\xff".to_vec());
        let words = ["--server".into(), odd()].into_iter();
        let reason = Arguments::parse(words, |_| None).err();
        assert_eq!(reason.as_deref(), Some("an argument is not valid UTF-8"));
        for name in ["REDIS_THROTTLE_SERVERS", "REDIS_THROTTLE_CLUSTERS"] {
            let words = ["--server", "redis://a"].map(OsString::from).into_iter();
            let reason = Arguments::parse(words, |asked| (asked == name).then(odd)).err();
            assert_eq!(reason, Some(format!("{name} is not valid UTF-8")));
        }
    }
}
