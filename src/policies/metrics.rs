//! `RL.METRICS`: all counters, in the text format of Prometheus.

use crate::policies::table as policies;
use crate::{api, clock, info, top};
use redis_throttle_engine::calendar::zone;
use redis_throttle_engine::exposition::Exposition;
use redis_throttle_engine::policy::metrics;

/// The bytes to reserve for all text that does not depend on policies.
const TEXT_LEN: usize = 8 * 1024;

/// Returns the text of `RL.METRICS`: all counters of `INFO rl`, and the counters of all policies
/// that were used.
pub fn text() -> String {
    let mut text = Exposition::default();
    text.reserve(TEXT_LEN);
    let source = clock::source().to_str().unwrap_or_default();
    text.gauge(
        "rl_build_info",
        "Versions and clock source of the module, as labels of a constant 1.",
    )
    .sample(
        &[
            ("version", env!("CARGO_PKG_VERSION")),
            ("tzdb_version", zone::DATABASE_VERSION),
            ("clock_source", source),
        ],
        1,
    );
    text.gauge(
        "rl_clock_frozen",
        "1 if RL.DEBUG has frozen the clock of the module, for tests; otherwise 0.",
    )
    .sample(&[], clock::is_frozen().into());
    text.counter("rl_errors_total", "Error replies.").sample(&[], info::errors());
    text.counter("rl_panics_total", "Caught panics.").sample(&[], api::guard::panics());
    let mut family = text.counter("rl_decisions_total", "Calls decided by a command.");
    for (command, allowed, denied) in info::decisions() {
        family.sample(&[("command", command), ("outcome", "allowed")], allowed);
        family.sample(&[("command", command), ("outcome", "denied")], denied);
    }
    let mut family = text.counter("rl_keys_created_total", "Keys created by a command.");
    for (command, created) in info::created() {
        family.sample(&[("command", command)], created);
    }
    if let Some([of_first, of_ten]) = top::denied_shares() {
        text.gauge("rl_denied_top1_ratio", "Share of recent denials on the key denied most.")
            .sample_millionths(&[], of_first);
        text.gauge("rl_denied_top10_ratio", "Share of recent denials on the ten keys denied most.")
            .sample_millionths(&[], of_ten);
    }
    let (count, digest) = policies::table().count_and_digest(clock::now());
    text.gauge("rl_policies", "Policies in effect, including variants.").sample(&[], count as u64);
    text.gauge("rl_policies_info", "Digest of all policies in effect, as a label of a constant 1.")
        .sample(&[("digest", &format!("{digest:016x}"))], 1);
    metrics::write(&policies::table().statistics, &mut text);
    text.into_text()
}
