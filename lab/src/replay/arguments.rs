//! The arguments of `replay`.

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
#[command(after_long_help = HELP)]
pub struct ReplayArguments {
    /// Log files, plain or gzip; `-` is the standard input. Several are merged by time
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,

    /// `combined`, `json`, or the text of nginx's log_format
    #[arg(long, default_value = "combined", value_name = "FORMAT")]
    pub format: String,

    /// The same as `--format json`: one JSON object per line
    #[arg(long)]
    pub json_lines: bool,

    /// The key that is limited: a field such as '$remote_addr', '$remote_addr/64' or '$user:$host'
    /// [default: $remote_addr, if the format has it]
    #[arg(long, value_name = "TEMPLATE")]
    pub key: Option<String>,

    /// The field with the time [default: msec, time_local or time_iso8601; time in JSON]
    #[arg(long, value_name = "FIELD")]
    pub time: Option<String>,

    /// The field with the seconds a request took, which are subtracted; `none` for none
    /// [default: request_time, if there is one]
    #[arg(long, value_name = "FIELD")]
    pub request_time: Option<String>,

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

    /// The time by which lines may be out of order
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

    /// Also write the report to a file, as one page of HTML
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  redis-throttle-lab replay access.log.1.gz access.log --rule 'GCRA 20 10 1s' --rule 'FIXED 600 60'
  redis-throttle-lab replay app.jsonl --json-lines --time ts --key user.id --suggest
  zcat *.gz | redis-throttle-lab replay - --policies /etc/redis/policies --policy api

Fields of a log are those of its format. $method, $path (without the query), $uri and $protocol are
parts of $request. $remote_addr/64 cuts an IPv6 address to its /64 network, $remote_addr/24/56 also
an IPv4 address to its /24. A nested field of JSON is named with dots: request.ip, or
${request.ip} inside a text.

Times of the combined format are whole seconds at the end of a request. For exact times, log in
nginx with

  log_format timed '$remote_addr - $remote_user [$time_local] \"$request\" $status \
$body_bytes_sent $msec $request_time';

and replay with the same text in --format. $request_time is then subtracted, so that a request
counts when it began.

Bounds: 500 files, lines of 64 KiB, 16,000,000 keys of at most 1,024 bytes, 1 GiB of SLIDINGLOG
states, 500,000 lines kept to be put in order. A line that cannot be read is counted, and the
first 3 are shown.

Exit status: 0 for a report, 1 if more than 1 % of the lines could not be read, 2 for any other
error.";
