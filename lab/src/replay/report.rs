//! The report: everything that a replay found, as text, HTML and JSON show it.

use super::tally::Tally;
use serde::Serialize;

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the program.
    pub version: &'static str,
    /// The files.
    pub files: Vec<String>,
    /// The format of the lines.
    pub format: String,
    /// The lines.
    pub lines: LinesReport,
    /// The time of the first and the last call, in microseconds since the Unix epoch; `None`
    /// without calls.
    pub from_us: Option<u64>,
    /// The time of the last call.
    pub to_us: Option<u64>,
    /// The number of calls.
    pub calls: u64,
    /// The number of keys.
    pub keys: u64,
    /// The template of the keys.
    pub key: String,
    /// The reasons why the figures may be wrong.
    pub doubts: Vec<String>,
    /// The remarks on the figures.
    pub notes: Vec<String>,
    /// The limits: each rule, all rules together, or all policies.
    pub limits: Vec<LimitReport>,
    /// The policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyReport>,
    /// The suggestion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<SuggestionReport>,
    /// The link to the lab's page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab_link: Option<LinkReport>,
}

/// A link that shows a part of the log's rate, and the rules, on the lab's page.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// The address.
    pub address: String,
    /// The keys that the page draws.
    pub keys: u64,
    /// The time that it shows, in microseconds since the Unix epoch.
    pub from_us: u64,
    /// The end of that time.
    pub to_us: u64,
}

/// The lines of the files.
#[derive(Clone, Debug, Serialize)]
pub struct LinesReport {
    /// All lines that are not empty.
    pub read: u64,
    /// The lines that could not be read.
    pub bad: u64,
    /// The first of them.
    pub first_bad: Vec<BadLine>,
    /// The lines that a condition left out.
    pub left_out: u64,
    /// The lines without a key.
    pub without_key: u64,
    /// The lines that could not be put in order.
    pub late: u64,
    /// The lines with status 429.
    pub denied_before: u64,
}

/// A line that could not be read.
#[derive(Clone, Debug, Serialize)]
pub struct BadLine {
    /// The file.
    pub file: String,
    /// The number of the line.
    pub line: u64,
    /// The reason.
    pub reason: String,
    /// The beginning of the line.
    pub text: String,
}

/// The effect of a limit.
#[derive(Clone, Debug, Serialize)]
pub struct LimitReport {
    /// The rule, or a name for several.
    pub name: String,
    /// The calls.
    pub calls: u64,
    /// The denied calls.
    pub denied: u64,
    /// The calls that shadow mode allows and the rule would deny.
    pub shadow_denied: u64,
    /// The denied calls whose cost is above the limit.
    pub never_allowed: u64,
    /// The keys with denied calls, also in shadow mode.
    pub keys_denied: u64,
    /// The longest wait of a denied call until its retry, in milliseconds, rounded up.
    pub longest_wait_ms: u64,
    /// The allowed calls that wait in the queue of a leaky bucket before they act.
    pub queued: u64,
    /// The longest of those waits, in milliseconds, rounded up.
    pub longest_queue_ms: u64,
    /// The denied calls whose reply each rule of several gave: the one with the longest wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denials_answered_by: Vec<(String, u64)>,
    /// The memory on a server.
    pub memory: MemoryReport,
    /// The counts over time.
    pub timeline: TimelineReport,
    /// The most denied keys.
    pub most_denied: Vec<KeyReport>,
}

/// The memory that the keys would need on a server, at most.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryReport {
    /// All keys at once.
    pub bytes: u64,
    /// The most keys at once.
    pub keys_at_once: u64,
    /// The bytes of one key.
    pub bytes_a_key: u64,
}

/// The counts over time.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineReport {
    /// The start of the first interval, in microseconds since the Unix epoch.
    pub start_us: u64,
    /// The length of an interval.
    pub interval_us: u64,
    /// The calls in each interval.
    pub calls: Vec<u64>,
    /// The denied calls in each interval.
    pub denied: Vec<u64>,
    /// The calls in each interval that shadow mode allows and the rule would deny.
    pub shadow_denied: Vec<u64>,
}

/// A key with denied calls.
#[derive(Clone, Debug, Serialize)]
pub struct KeyReport {
    /// The key.
    pub key: String,
    /// All its calls.
    pub calls: u64,
    /// The denied calls, also in shadow mode.
    pub denied: u64,
    /// The calls in its busiest window.
    pub peak: u64,
    /// The length of that window, in milliseconds.
    pub peak_window_ms: u64,
}

/// A policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// The name, with the variant.
    pub name: String,
    /// The mode in words.
    pub mode: String,
    /// The rule.
    pub rule: String,
    /// The calls.
    pub calls: u64,
    /// The denied calls.
    pub denied: u64,
    /// The calls that shadow mode allows and the rule would deny.
    pub shadow_denied: u64,
    /// The keys with denied calls, also in shadow mode.
    pub keys_denied: u64,
}

/// A suggestion.
#[derive(Clone, Debug, Serialize)]
pub struct SuggestionReport {
    /// The percentage of keys that the suggestion covers.
    pub cover: String,
    /// The horizon.
    pub horizon: String,
    /// The percentage that was added.
    pub margin_percent: u32,
    /// The rates or windows, with the bursts or limits that cover 99, 99.9 and 99.99 % of the keys.
    pub frontier: Vec<RungReport>,
    /// The suggested rule.
    pub rule: Option<String>,
    /// The line of a policy file with the suggested rule.
    pub policy_line: Option<String>,
    /// The keys that the suggestion would deny.
    pub excluded_keys: u64,
    /// The calls of those keys, also the allowed ones.
    pub excluded_calls: u64,
    /// The excluded keys with the most calls.
    pub excluded: Vec<ExcludedReport>,
}

/// A rate or window of a suggestion.
#[derive(Clone, Debug, Serialize)]
pub struct RungReport {
    /// The rate or window.
    pub rung: String,
    /// The bursts or limits; `None` if no rule has them.
    pub units: Vec<RungUnits>,
    /// Whether it is the suggested one.
    pub suggested: bool,
}

/// The burst or limit that covers a share of the keys.
#[derive(Clone, Debug, Serialize)]
pub struct RungUnits {
    /// The percentage, or `all` if there are too few keys for it.
    pub cover: String,
    /// The burst or limit; `None` if no rule has it.
    pub units: Option<u64>,
}

/// A key that a suggestion would deny.
#[derive(Clone, Debug, Serialize)]
pub struct ExcludedReport {
    /// The key.
    pub key: String,
    /// Its calls.
    pub calls: u64,
    /// The burst or limit that it needs; `None` if no rule has it.
    pub needs: Option<u64>,
}

/// The bytes of a key on a server besides the key's name and its value: a little more than Redis
/// 7.0 takes in `docs/bench/redis-7.0.md`.
pub const SERVER_BYTES_A_KEY: u64 = 128;

impl LimitReport {
    /// Creates the report of a tally. `value_len` is the length of a stored value, and `key_len`
    /// that of a key.
    pub fn new(name: String, tally: &Tally, value_len: u64, key_len: u64) -> Self {
        let bytes_a_key = value_len + key_len + SERVER_BYTES_A_KEY;
        let keys_at_once = tally.at_once.most;
        let bytes = keys_at_once.saturating_mul(bytes_a_key);
        let moments = tally.moments.all();
        let column = |at: usize| moments.iter().map(|moment| moment[at]).collect();
        Self {
            name,
            calls: tally.calls,
            denied: tally.denied,
            shadow_denied: tally.shadow_denied,
            never_allowed: tally.never,
            keys_denied: tally.keys_denied,
            longest_wait_ms: tally.longest_wait_us.div_ceil(1_000),
            queued: tally.queued,
            longest_queue_ms: tally.longest_queue_us.div_ceil(1_000),
            denials_answered_by: Vec::new(),
            memory: MemoryReport { bytes, keys_at_once, bytes_a_key },
            timeline: TimelineReport {
                start_us: tally.moments.start_us(),
                interval_us: tally.moments.width_us(),
                calls: column(0),
                denied: column(1),
                shadow_denied: column(2),
            },
            most_denied: Vec::new(),
        }
    }
}
