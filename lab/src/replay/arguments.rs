//! The arguments of `replay`.

use super::formats;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The places of the lines of one second, if the log gives only seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InSecond {
    /// All at the beginning of the second.
    AtOnce,
    /// Evenly over the second.
    Spread,
}

/// The algorithm of a suggestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SuggestedAlgorithm {
    /// A burst for each of several rates.
    Gcra,
    /// A capacity for each of several rates.
    Tokenbucket,
    /// A limit for each of several windows.
    Fixed,
}

/// The arguments of a replay.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = help())]
pub struct ReplayArguments {
    /// Log files, plain or gzip; `-` is the standard input. Several are merged by time
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,

    /// A name of the list below, `json`, or the text of nginx's log_format [default: found by the
    /// first lines]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,

    /// The same as `--format json`: one JSON object per line
    #[arg(long)]
    pub json_lines: bool,

    /// The key that is limited: a field such as '$remote_addr', '$remote_addr/64' or '$user:$host'
    /// [default: $remote_addr, if the format has it]
    #[arg(long, value_name = "TEMPLATE")]
    pub key: Option<String>,

    /// The field with the time, or a template such as '$date $time' [default: that of the format;
    /// time in JSON]
    #[arg(long, value_name = "TEMPLATE")]
    pub time: Option<String>,

    /// The offset from UTC of times that name none, such as +02:00
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    pub utc_offset: Option<String>,

    /// The field with the time a request took, which is subtracted, and its unit: s, ms, us or ns,
    /// as in `duration:ms`; `none` for none [default: that of the format, in seconds]
    #[arg(long, value_name = "FIELD[:UNIT]")]
    pub request_time: Option<String>,

    /// The proxies that report the client's address in X-Forwarded-For: networks, with commas. It
    /// then replaces $remote_addr
    #[arg(long, value_name = "NETWORKS")]
    pub trusted_proxies: Option<String>,

    /// The units of a call: a number, or a field such as '$body_bytes_sent' [default: 1, or the
    /// COST of the rule]
    #[arg(long, value_name = "UNITS")]
    pub cost: Option<String>,

    /// Only lines that meet a condition, such as 'status!=429'; operators: = != < > <= >= and ~
    /// for a prefix. May be repeated; all must hold
    #[arg(long = "where", value_name = "CONDITION")]
    pub conditions: Vec<String>,

    /// A rule, such as 'GCRA 20 10 1s'. Up to 4, each tried by itself
    #[arg(long = "rule", value_name = "RULE")]
    pub rules: Vec<String>,

    /// Decide all rules together, as one RL.ALL does; then up to 16
    #[arg(long, requires = "rules")]
    pub all: bool,

    /// Replay against the policies of a file in place of rules
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rules", "all"])]
    pub policies: Option<String>,

    /// The policy of a line: a name, or a field such as '$api'
    #[arg(long, value_name = "TEMPLATE")]
    pub policy: Option<String>,

    /// A variant of the policy, such as 'plan:$plan'. May be repeated; the first that exists
    /// applies
    #[arg(long = "for", value_name = "TEMPLATE", requires = "policies")]
    pub variants: Vec<String>,

    /// Compute the smallest limits that would have denied almost no key
    #[arg(long, value_name = "ALGORITHM", num_args = 0..=1, require_equals = true,
        default_missing_value = "gcra", conflicts_with = "policies")]
    pub suggest: Option<SuggestedAlgorithm>,

    /// The percentage of keys that a suggestion never denies: 99, 99.9 or 99.99
    #[arg(long, value_name = "PERCENT", default_value = "99.9", requires = "suggest")]
    pub cover: String,

    /// The time over which a suggestion allows the fewest units
    #[arg(long, value_name = "DURATION", default_value = "60s", requires = "suggest")]
    pub horizon: String,

    /// The percentage by which a suggested burst or limit is raised
    #[arg(long, value_name = "PERCENT", default_value_t = 0, requires = "suggest",
        value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub margin: u32,

    /// The rates or windows of a suggestion, such as '10/1m,1/1s' or '1s,1m,1h'
    #[arg(long, value_name = "LIST", requires = "suggest")]
    pub ladder: Option<String>,

    /// Keep the lines of this time to put them in order, if they are more than 250,000
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub reorder: String,

    /// The places of the lines of one second, if the log gives only seconds
    #[arg(long, value_name = "PLACE", default_value = "spread")]
    pub in_second: InSecond,

    /// Continue if more than 1 % of the lines cannot be read
    #[arg(long)]
    pub skip_bad: bool,

    /// Print a link that shows the log's rate and the rules on the page of the lab
    #[arg(long, requires = "rules")]
    pub open: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Also write the report to a file, as HTML
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Returns the text after the options.
fn help() -> String {
    let named: String =
        formats::list().map(|(name, about)| format!("  {name:<15} {about}\n")).collect();
    HELP.replace("FORMATS\n", &format!("{named}\n"))
}

const HELP: &str = "\
Examples:
  redis-throttle-lab replay access.log.1.gz access.log --rule 'GCRA 20 10 1s' --rule 'FIXED 600 60'
  redis-throttle-lab replay app.jsonl --json-lines --time ts --key user.id --suggest
  redis-throttle-lab replay *.log.gz --policies /etc/redis/policies --policy api
  redis-throttle-lab replay haproxy.log --utc-offset +02:00 --key '$remote_addr/24/64' --suggest

Formats:
FORMATS
Fields of a log are those of its format. $method, $path (without the query), $uri and $protocol are
parts of $request. $remote_addr/64 cuts an IPv6 address to its /64 network, $remote_addr/24/56 also
an IPv4 address to its /24. ${http_x_forwarded_for[-1]} is the last of a list. A nested field of
JSON is named with dots: request.ip, or ${request.ip} inside a text. Lines that begin with # are
comments; #Fields: names columns, which CloudFront's real-time logs lack.

A line whose user or address is empty or -, alone or in a joined key, has no key: no limit counts
it. Any other field may be -.

Times of the combined format are whole seconds, of nginx at the end of a request and of Apache at
its beginning: never subtract Apache's %D. For exact times, log in nginx with

  log_format timed '$remote_addr - $remote_user [$time_local] \"$request\" $status \
$body_bytes_sent $msec $request_time';

and replay with the same text in --format. $request_time is then subtracted, so that a request
counts when it began.

Bounds: 500 files, lines of 64 KiB, 16,000,000 keys of at most 1,024 bytes, 1 GiB of SLIDINGLOG
states, 250,000 lines kept to be put in order, or with --reorder and long requests 16,000,000. A
line that cannot be read is counted, and the first 3 are printed.

Exit status: 0 for a report. 1 if more than 1 % of the lines could not be read or put in order, and
for a report whose figures may be wrong, which then says so first. 2 for any other error.";
