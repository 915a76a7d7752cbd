//! The command line and environment of the gateway.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use redis_throttle_client::redis::{ConnectionInfo, IntoConnectionInfo as _};

use crate::decider::Tags;
use crate::listener::Address;
use crate::log::Format;
use crate::tls::Files;

/// The output of `--help`.
pub const HELP: &str = "\
Rate limits of redis-throttle for Envoy and other proxies.

Usage: redis-throttle-gateway --server URL --config PATH [--grpc ADDRESS] [--http ADDRESS]

  --server URL            the server with the module; several are nodes of one cluster
  --cluster               the server is a node of a cluster (implied by several)
  --config PATH           a file with one domain, or a folder of such files; read again on change
  --grpc ADDRESS          Envoy's rate limit service
  --http ADDRESS          checks for other proxies, /metrics and /healthcheck
                          (default without both: --grpc 127.0.0.1:8081 --http 127.0.0.1:8080)
  --tls-certificate FILE  TLS on both: the certificate and its chain (PEM), read again on change
  --tls-key FILE          the key of the certificate (PEM), read again on change
  --tls-client-ca FILE    only for clients with a certificate of these authorities (PEM)
  --timeout-ms N          the most that a call to the server takes, 1 to 3600000 (default 200)
  --silence-ms N          a server that sends nothing for so long is down, at most
                          --timeout-ms (default 50; --timeout-ms, if only that is given)
  --prefix TEXT           the beginning of keys (default rl)
  --hash-tag WHICH        what keys have in braces: value (the first captured one; default in a
                          cluster), domain, or none (default on one server)
  --prefetch N            permits to fetch at once where a request has one rule, 1 to 10000
                          (default 1)
  --denial-cache N        denials to keep in memory until their retry, at most 1 s, 0 to 1000000
                          (default 10000)
  --threads N             threads that handle requests, 1 to 1024 (default: one for two cores)
  --log FORM              json or text, on standard error (default text on a terminal, else json)
  --check                 read the configuration, print the command of a sample request of each
                          limit
  --print-policies        print the limits as lines of a policy file
  --help, --version

An ADDRESS is IP:PORT, or unix:PATH for a socket without TLS, with mode 0666: the rights of its
folder decide which users may connect. SIGHUP reads all files again.
A URL is redis://[user:password@]host[:port], rediss:// for TLS by the authorities of the system, or
redis+unix:///path?user=&pass=.
Every user of a machine can read command lines. To keep a password out of them, set the environment
variable REDIS_THROTTLE_SERVERS to URLs separated by blanks.
";

const GRPC: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const SERVERS: &str = "REDIS_THROTTLE_SERVERS";
/// The times that the client takes, in milliseconds.
const MS: RangeInclusive<u64> = 1..=3_600_000;
/// The denials that the client keeps.
const DENIALS: RangeInclusive<u64> = 0..=1_000_000;
/// Shorter than the 0.25 s that the proxies of the examples wait.
const TIMEOUT_MS: u64 = 200;
const SILENCE_MS: u64 = 50;

/// The settings of the gateway.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// The server, or nodes of a cluster.
    pub servers: Vec<ConnectionInfo>,
    /// True if the servers are nodes of a cluster.
    pub is_cluster: bool,
    /// The file or folder of the configuration.
    pub config: PathBuf,
    /// The address of the gRPC service, unless only HTTP is served.
    pub grpc: Option<Address>,
    /// The address of the HTTP server, unless only gRPC is served.
    pub http: Option<Address>,
    /// The files for TLS on IP addresses.
    pub tls: Option<Files>,
    /// The form of log lines.
    pub log: Format,
    /// The most that a call to the server takes.
    pub timeout: Duration,
    /// The time after which a server that sends nothing is down.
    pub silence: Duration,
    /// The beginning of keys.
    pub prefix: String,
    /// The hash tags of keys.
    pub tags: Tags,
    /// The permits to fetch at once.
    pub prefetch: u64,
    /// The denials to keep in memory.
    pub denial_cache: usize,
    /// The threads that handle requests.
    pub threads: usize,
}

/// The action that a command line requests.
#[derive(Debug)]
pub enum Action {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Run the gateway.
    Run(Arguments),
    /// Print the commands of samples.
    Check(Arguments),
    /// Print the limits as policies.
    PrintPolicies(Arguments),
}

/// The words of the command line, as far as they are read.
struct Draft {
    servers: Vec<ConnectionInfo>,
    is_cluster: bool,
    config: Option<PathBuf>,
    grpc: Option<Address>,
    http: Option<Address>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    log: Option<Format>,
    timeout_ms: Option<u64>,
    silence_ms: Option<u64>,
    prefix: String,
    tags: Option<Tags>,
    prefetch: u64,
    denial_cache: usize,
    threads: usize,
}

impl Arguments {
    /// Reads the words of a command line, and environment variables through `variable`.
    ///
    /// # Errors
    /// A line that says what is wrong. It never contains a URL, because a URL may contain a
    /// password.
    pub fn parse(
        words: impl Iterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Action, String> {
        let mut draft = Draft::new();
        for url in utf8(SERVERS, variable(SERVERS).unwrap_or_default())?.split_whitespace() {
            draft.servers.push(connection(SERVERS, url)?);
        }
        let (mut check, mut print) = (false, false);
        let words = words.map(|word| utf8("an argument", word)).collect::<Result<Vec<_>, _>>()?;
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--check" => check = true,
                "--print-policies" => print = true,
                "--help" | "-h" => return Ok(Action::Help),
                "--version" | "-V" => return Ok(Action::Version),
                _ => draft.take(&word, &mut words)?,
            }
        }
        let arguments = draft.finished(check || print)?;
        Ok(match (check, print) {
            (true, _) => Action::Check(arguments),
            (false, true) => Action::PrintPolicies(arguments),
            (false, false) => Action::Run(arguments),
        })
    }
}

impl Draft {
    fn new() -> Self {
        Self {
            servers: Vec::new(),
            is_cluster: false,
            config: None,
            grpc: None,
            http: None,
            certificate: None,
            key: None,
            client_ca: None,
            log: None,
            timeout_ms: None,
            silence_ms: None,
            prefix: "rl".to_owned(),
            tags: None,
            prefetch: 1,
            denial_cache: 10_000,
            threads: one_for_two_cores(),
        }
    }

    /// Reads a word with a value, which may follow `=`.
    fn take(&mut self, word: &str, words: &mut impl Iterator<Item = String>) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        let mut value = || {
            let value = value.clone().or_else(|| words.next());
            value.ok_or_else(|| format!("{name} needs a value"))
        };
        match name {
            "--cluster" if word == name => self.is_cluster = true,
            "--server" => self.servers.push(connection(name, &value()?)?),
            "--config" => self.config = Some(value()?.into()),
            "--grpc" => self.grpc = Some(address(name, &value()?)?),
            "--http" => self.http = Some(address(name, &value()?)?),
            "--tls-certificate" => self.certificate = Some(value()?.into()),
            "--tls-key" => self.key = Some(value()?.into()),
            "--tls-client-ca" => self.client_ca = Some(value()?.into()),
            "--log" => self.log = Some(format(&value()?)?),
            "--timeout-ms" => self.timeout_ms = Some(number(name, &value()?, MS)?),
            "--silence-ms" => self.silence_ms = Some(number(name, &value()?, MS)?),
            "--prefix" => self.prefix = value()?,
            "--hash-tag" => self.tags = Some(tags(&value()?)?),
            "--prefetch" => self.prefetch = number(name, &value()?, 1..=10_000)?,
            "--denial-cache" => {
                let most = number(name, &value()?, DENIALS)?;
                self.denial_cache = usize::try_from(most).unwrap_or(usize::MAX);
            }
            "--threads" => {
                let threads = number(name, &value()?, 1..=1024)?;
                self.threads = usize::try_from(threads).unwrap_or(1);
            }
            _ => return Err("unknown argument: --help lists the known ones".to_owned()),
        }
        Ok(())
    }

    fn finished(self, is_offline: bool) -> Result<Arguments, String> {
        if self.servers.is_empty() && !is_offline {
            return Err("no server: name one with --server URL, or see --help".to_owned());
        }
        let none = "no configuration: name a file or a folder with --config PATH, or see --help";
        let is_cluster = self.is_cluster || self.servers.len() > 1;
        let tags = if is_cluster { Tags::Value } else { Tags::None };
        let (grpc, http) = match (self.grpc, self.http) {
            (None, None) => (Some(Address::Tcp(GRPC)), Some(Address::Tcp(HTTP))),
            given => given,
        };
        let tls = files(self.certificate, self.key, self.client_ca)?;
        let is_tcp = |address: &Option<Address>| matches!(address, Some(Address::Tcp(_)));
        if tls.is_some() && !is_tcp(&grpc) && !is_tcp(&http) {
            return Err("TLS needs --grpc or --http with an IP address".to_owned());
        }
        let (timeout, silence) = times(self.timeout_ms, self.silence_ms)?;
        Ok(Arguments {
            config: self.config.ok_or(none)?,
            servers: self.servers,
            is_cluster,
            grpc,
            http,
            tls,
            log: self.log.unwrap_or_else(Format::of_stderr),
            timeout,
            silence,
            prefix: self.prefix,
            tags: self.tags.unwrap_or(tags),
            prefetch: self.prefetch,
            denial_cache: self.denial_cache,
            threads: self.threads,
        })
    }
}

/// Returns half of the cores, rounded up. A check is little work: more threads mostly wake each
/// other.
fn one_for_two_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

fn utf8(source: &str, text: OsString) -> Result<String, String> {
    text.into_string().map_err(|_| format!("{source} is not valid UTF-8"))
}

fn connection(source: &str, url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info().map_err(|_| {
        format!("{source} takes URLs: redis[s]://[user:password@]host[:port] or redis+unix:///path")
    })
}

fn address(name: &str, text: &str) -> Result<Address, String> {
    let expected = "an IP address with a port, or a socket: 127.0.0.1:8081 or unix:/run/x.sock";
    text.parse().map_err(|_| format!("{name} takes {expected}"))
}

/// Returns the files for TLS; `None` without TLS.
fn files(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> Result<Option<Files>, String> {
    match (certificate, key, client_ca) {
        (Some(certificate), Some(key), client_ca) => {
            Ok(Some(Files { certificate, key, client_ca }))
        }
        (None, None, None) => Ok(None),
        _ => Err("TLS needs --tls-certificate and --tls-key".to_owned()),
    }
}

/// Returns the most that a call takes, and the time after which a silent server is down.
fn times(timeout_ms: Option<u64>, silence_ms: Option<u64>) -> Result<(Duration, Duration), String> {
    let timeout = timeout_ms.unwrap_or(TIMEOUT_MS);
    let silence = silence_ms.or(timeout_ms).unwrap_or(SILENCE_MS);
    if silence > timeout {
        return Err(format!(
            "--silence-ms takes at most --timeout-ms: --silence-ms is {silence}, --timeout-ms is \
             {timeout}"
        ));
    }
    Ok((Duration::from_millis(timeout), Duration::from_millis(silence)))
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "json" => Ok(Format::Json),
        "text" => Ok(Format::Text),
        _ => Err("--log takes json or text".to_owned()),
    }
}

fn number(name: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("{name} takes {} to {}", range.start(), range.end()))
}

fn tags(text: &str) -> Result<Tags, String> {
    match text {
        "value" => Ok(Tags::Value),
        "domain" => Ok(Tags::Domain),
        "none" => Ok(Tags::None),
        _ => Err("--hash-tag takes value, domain or none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Action, String> {
        Arguments::parse(line.split_whitespace().map(OsString::from), |_| None)
    }

    fn run(line: &str) -> Arguments {
        match parse(line) {
            Ok(Action::Run(arguments)) => arguments,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn defaults_listen_on_loopback_and_wait_200_ms() {
        let one = run("--server redis://a --config limits");
        let both = ["127.0.0.1:8081", "127.0.0.1:8080"].map(|text| Some(text.parse().unwrap()));
        assert_eq!([one.grpc, one.http], both);
        let ms = Duration::from_millis;
        assert_eq!((one.timeout, one.silence, one.tags), (ms(200), ms(50), Tags::None));
        assert!(!one.is_cluster);
        let many = run("--server redis://a --server=redis://b --config limits");
        assert_eq!((many.servers.len(), many.tags, many.is_cluster), (2, Tags::Value, true));
        let one = run("--server redis://a --config limits --cluster");
        assert_eq!((one.servers.len(), one.tags, one.is_cluster), (1, Tags::Value, true));
    }

    #[test]
    fn silence_follows_a_timeout_that_is_given_alone() {
        let table = [("--timeout-ms 10", [10, 10]), ("--silence-ms 60 --timeout-ms 70", [70, 60])];
        for (words, expected) in table {
            let one = run(&format!("--server redis://a --config limits {words}"));
            assert_eq!([one.timeout, one.silence], expected.map(Duration::from_millis), "{words}");
        }
    }

    #[test]
    fn one_given_address_is_the_only_one() {
        let http = run("--server redis://a --config limits --http 127.0.0.1:1");
        assert_eq!((http.grpc, http.http), (None, "127.0.0.1:1".parse().ok()));
        let grpc = run("--server rediss://a --config limits --grpc unix:/run/a.sock");
        assert_eq!((grpc.grpc, grpc.http), (Some(Address::Unix("/run/a.sock".into())), None));
    }

    #[test]
    fn servers_come_from_the_environment_too() {
        let both = || OsString::from("redis://a redis://b");
        let variable = |name: &str| (name == SERVERS).then(both);
        let words = ["--config", "limits"].map(OsString::from).into_iter();
        let Ok(Action::Run(arguments)) = Arguments::parse(words, variable) else { panic!() };
        assert_eq!(arguments.servers.len(), 2);
    }

    #[test]
    fn invalid_arguments_get_an_error_that_says_what_to_do_and_shows_no_url() {
        let table = [
            ("--config limits", "no server: name one with --server URL, or see --help"),
            (
                "--server redis://a",
                "no configuration: name a file or a folder with --config PATH, or see --help",
            ),
            ("--frob", "unknown argument: --help lists the known ones"),
            ("--grpc", "--grpc needs a value"),
            (
                "--grpc localhost",
                "--grpc takes an IP address with a port, or a socket: 127.0.0.1:8081 or \
                 unix:/run/x.sock",
            ),
            ("--log xml", "--log takes json or text"),
            ("--tls-key a --config b --check", "TLS needs --tls-certificate and --tls-key"),
            (
                "--tls-key a --tls-certificate b --config c --check --http unix:d",
                "TLS needs --grpc or --http with an IP address",
            ),
            ("--timeout-ms 0", "--timeout-ms takes 1 to 3600000"),
            ("--timeout-ms -1", "--timeout-ms takes 1 to 3600000"),
            ("--timeout-ms 99999999999999999999", "--timeout-ms takes 1 to 3600000"),
            ("--silence-ms -1", "--silence-ms takes 1 to 3600000"),
            ("--silence-ms 3600001", "--silence-ms takes 1 to 3600000"),
            (
                "--config limits --check --silence-ms 201",
                "--silence-ms takes at most --timeout-ms: --silence-ms is 201, --timeout-ms is 200",
            ),
            ("--denial-cache 1000001", "--denial-cache takes 0 to 1000000"),
            ("--threads 0", "--threads takes 1 to 1024"),
            ("--hash-tag user", "--hash-tag takes value, domain or none"),
            (
                "--server http://me:secret@a",
                "--server takes URLs: redis[s]://[user:password@]host[:port] or redis+unix:///path",
            ),
        ];
        for (line, text) in table {
            assert_eq!(parse(line).unwrap_err(), text, "{line}");
        }
    }

    #[test]
    fn check_needs_no_server() {
        assert!(matches!(parse("--check --config limits"), Ok(Action::Check(_))));
        assert!(matches!(parse("--print-policies --config a"), Ok(Action::PrintPolicies(_))));
    }

    #[test]
    fn help_is_aligned_and_fits_a_terminal() {
        assert!(HELP.lines().all(|line| line.len() <= 100));
        let options = HELP.lines().filter(|line| line.starts_with("  --") && line.len() > 26);
        assert!(options.clone().count() >= 14);
        for line in options {
            assert_eq!((&line[25..26], &line[26..27] == " "), (" ", false), "{line}");
        }
    }
}
