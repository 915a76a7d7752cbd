//! The statistics of policies for Prometheus.
//!
//! Labels are the names of policies and variants, which operators and code choose, and never a key.
//! The number of series depends only on the number of policies with calls.

use crate::exposition::Exposition;
use crate::policy::statistics::{Counters, Statistics};

/// The bytes to reserve for all samples of one policy, without its name, which each sample repeats.
const SAMPLES_LEN: usize = 600;
const SAMPLES: usize = 8;

/// Adds the counters of all policies with calls, sorted by name.
pub fn write(statistics: &Statistics, exposition: &mut Exposition) {
    let all = statistics.all().into_iter();
    let rows: Vec<_> = all.filter(|(_, counters)| !counters.are_untouched()).map(Row::of).collect();
    let names_len: usize = rows.iter().map(|row| row.policy.len() + row.variant.len()).sum();
    exposition.reserve(rows.len() * SAMPLES_LEN + names_len * SAMPLES);

    let mut family = exposition.counter(
        "rl_policy_decisions_total",
        "Calls decided by a policy; shadow_denied were allowed but would be denied if enforced.",
    );
    for Row { policy, variant, counters } in &rows {
        let outcomes = [
            ("allowed", counters.allowed),
            ("denied", counters.denied),
            ("shadow_denied", counters.shadow_denied),
        ];
        for (outcome, calls) in outcomes {
            let labels = [("policy", *policy), ("variant", *variant), ("outcome", outcome)];
            family.sample(&labels, calls);
        }
    }
    for (name, help, number) in COUNTERS {
        let mut family = exposition.counter(name, help);
        rows.iter().for_each(|row| family.sample(&row.labels(), number(row.counters)));
    }
    let mut family = exposition.gauge(
        "rl_policy_last_denied_timestamp_seconds",
        "Unix time of the last call that a policy denied; absent if it denied none.",
    );
    for row in rows.iter().filter(|row| row.counters.last_denied_us > 0) {
        family.sample_millionths(&row.labels(), row.counters.last_denied_us);
    }
}

type Number = fn(&Counters) -> u64;

/// The counters with a metric family of their own: its name, its help text, and the number.
const COUNTERS: [(&str, &str, Number); 4] = [
    (
        "rl_policy_near_limit_total",
        "Allowed calls that left less than rl.near-limit-percent of the limit.",
        |counters| counters.near_limit,
    ),
    (
        "rl_policy_created_total",
        "Calls that stored the first state of a key under a policy.",
        |counters| counters.created,
    ),
    ("rl_policy_units_total", "Units that calls and charges took.", |counters| counters.units),
    ("rl_policy_errors_total", "Calls under a policy that ended in an error.", |counters| {
        counters.errors
    }),
];

struct Row<'a> {
    policy: &'a str,
    variant: &'a str,
    counters: &'a Counters,
}

impl<'a> Row<'a> {
    fn of((name, counters): (&'a [u8], &'a Counters)) -> Self {
        // A name is ASCII.
        let name = std::str::from_utf8(name).unwrap_or_default();
        let (policy, variant) = name.split_once('@').unwrap_or((name, ""));
        Self { policy, variant, counters }
    }

    const fn labels(&self) -> [(&'static str, &'a str); 2] {
        [("policy", self.policy), ("variant", self.variant)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::statistics::{Counted, Ending, Key};
    use crate::time::Instant;

    fn text(statistics: &Statistics) -> String {
        let mut exposition = Exposition::default();
        write(statistics, &mut exposition);
        exposition.into_text()
    }

    const NEAR: Counted = Counted {
        ending: Ending::Allowed,
        limit_units: 10,
        remaining_units: 1,
        taken_units: 9,
        created: true,
    };

    #[test]
    fn metrics_include_every_counter_and_omit_unused_policies() {
        let mut statistics = Statistics::default();
        let now = Instant::from_us(1_700_000_000_000_042);
        statistics.key_of_policy(b"untouched");
        let gold = statistics.key_of_policy(b"search@plan:gold");
        let denied = Counted { ending: Ending::Denied, taken_units: 0, created: false, ..NEAR };
        let shadow_denied = Counted { ending: Ending::ShadowDenied, ..denied };
        statistics.count(gold, &NEAR, 20, now);
        (0..2).for_each(|_| statistics.count(gold, &denied, 20, now));
        (0..3).for_each(|_| statistics.count(gold, &shadow_denied, 20, now));
        statistics.count_error(Key::OTHER);
        let text = text(&statistics);
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            r#"rl_policy_decisions_total{policy="(other)",variant="",outcome="allowed"} 0"#,
            r#"rl_policy_decisions_total{policy="(other)",variant="",outcome="denied"} 0"#,
            r#"rl_policy_decisions_total{policy="(other)",variant="",outcome="shadow_denied"} 0"#,
            r#"rl_policy_decisions_total{policy="search",variant="plan:gold",outcome="allowed"} 1"#,
            r#"rl_policy_decisions_total{policy="search",variant="plan:gold",outcome="denied"} 2"#,
            "rl_policy_decisions_total\
             {policy=\"search\",variant=\"plan:gold\",outcome=\"shadow_denied\"} 3",
            r#"rl_policy_near_limit_total{policy="(other)",variant=""} 0"#,
            r#"rl_policy_near_limit_total{policy="search",variant="plan:gold"} 1"#,
            r#"rl_policy_created_total{policy="(other)",variant=""} 0"#,
            r#"rl_policy_created_total{policy="search",variant="plan:gold"} 1"#,
            r#"rl_policy_units_total{policy="(other)",variant=""} 0"#,
            r#"rl_policy_units_total{policy="search",variant="plan:gold"} 9"#,
            r#"rl_policy_errors_total{policy="(other)",variant=""} 1"#,
            r#"rl_policy_errors_total{policy="search",variant="plan:gold"} 0"#,
            "rl_policy_last_denied_timestamp_seconds\
             {policy=\"search\",variant=\"plan:gold\"} 1700000000.000042",
        ];
        assert_eq!(samples, expected);
        assert_eq!(text.lines().filter(|line| line.starts_with("# HELP")).count(), 6);
    }

    #[test]
    fn metrics_are_empty_before_the_first_call() {
        let mut statistics = Statistics::default();
        statistics.key_of_policy(b"search");
        assert_eq!(text(&statistics), "");
    }

    #[test]
    fn reserved_memory_fits_the_longest_names_and_numbers() {
        let mut statistics = Statistics::default();
        let name = [&[b'p'; 64][..], b"@", &[b'v'; 64]].concat();
        let key = statistics.key_of_policy(&name);
        statistics.count(key, &Counted { ending: Ending::Denied, ..NEAR }, 20, Instant::CLOCK_MAX);
        let heads = text(&statistics).lines().filter(|line| line.starts_with('#')).count() * 110;
        assert!(text(&statistics).len() - heads < SAMPLES_LEN + SAMPLES * name.len());
    }
}
