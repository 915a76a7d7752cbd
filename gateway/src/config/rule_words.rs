//! Rules as the words of a command: `GCRA 20 10 1`, `FIXED 100 1h ALIGNED`.

use redis_throttle_client::{Error, Rule, Span};

/// The algorithms and their arguments.
const FORMS: [(&str, &[&str]); 8] = [
    ("GCRA", &["burst", "rate", "period"]),
    ("TOKENBUCKET", &["capacity", "rate", "period"]),
    ("LEAKYBUCKET", &["capacity", "rate", "period"]),
    ("FIXED", &["limit", "window"]),
    ("SLIDING", &["limit", "window"]),
    ("SLIDINGLOG", &["limit", "window"]),
    ("BACKOFF", &["attempts", "base", "max", "forget"]),
    ("QUOTA", &["limit", "unit"]),
];

/// A rule, and the mark of the states that it can continue: its algorithm and its unit of time. A
/// rule with another mark needs another key.
#[derive(Debug)]
pub(crate) struct Written {
    pub rule: Rule,
    pub mark: String,
    /// The most units that it allows at once.
    pub limit: u64,
}

/// Parses a rule.
///
/// # Errors
/// The text of the first mistake.
pub(crate) fn rule(name: &str, text: &str) -> Result<Written, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let Some((algorithm, words)) = words.split_first() else {
        return Err("invalid rule: expected words such as GCRA 20 10 1".to_owned());
    };
    let algorithm = algorithm.to_ascii_uppercase();
    let Some((algorithm, arguments)) = FORMS.into_iter().find(|(known, _)| *known == algorithm)
    else {
        return Err(unknown(&algorithm));
    };
    let Some((values, options)) = words.split_at_checked(arguments.len()) else {
        return Err(format!("invalid rule: expected {algorithm} {}", arguments.join(" ")));
    };
    let rule = build_rule(name, algorithm, values).map_err(|error| error.to_string())?;
    let rule = with_options(rule, algorithm, options)?;
    // The first value of each algorithm, which is a number.
    let limit = values.first().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    Ok(Written { rule, mark: mark(algorithm, values), limit })
}

fn unknown(algorithm: &str) -> String {
    match algorithm {
        "LEASE" => "a lease needs a holder that ends it: write another algorithm".to_owned(),
        "USE" => "a policy is not a rule: write `policy:` and `default:`".to_owned(),
        _ => {
            let known = FORMS.map(|(known, _)| known).join(", ");
            format!("unknown algorithm {algorithm:?}: expected one of {known}")
        }
    }
}

fn build_rule(name: &str, algorithm: &str, values: &[&str]) -> Result<Rule, Error> {
    let number = |text: &str, argument| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| digits);
        let expected = || format!("expected an integer, not {text:?}");
        number.ok_or_else(|| Error::InvalidArgument { argument, expected: expected() })
    };
    match (algorithm, values) {
        ("GCRA", [burst, rate, period]) => {
            Rule::gcra(name, number(burst, "burst")?, number(rate, "rate")?, *period)
        }
        ("TOKENBUCKET", [capacity, rate, period]) => {
            let (capacity, rate) = (number(capacity, "capacity")?, number(rate, "rate")?);
            Rule::token_bucket(name, capacity, rate, *period)
        }
        ("LEAKYBUCKET", [capacity, rate, period]) => {
            let (capacity, rate) = (number(capacity, "capacity")?, number(rate, "rate")?);
            Rule::leaky_bucket(name, capacity, rate, *period)
        }
        ("FIXED", [limit, window]) => Rule::fixed(name, number(limit, "limit")?, *window),
        ("SLIDING", [limit, window]) => Rule::sliding(name, number(limit, "limit")?, *window),
        ("SLIDINGLOG", [limit, window]) => {
            Rule::sliding_log(name, number(limit, "limit")?, *window)
        }
        ("BACKOFF", [attempts, base, max, forget]) => {
            Rule::backoff(name, number(attempts, "attempts")?, *base, *max, *forget)
        }
        ("QUOTA", [limit, unit]) => {
            Rule::quota(name, number(limit, "limit")?, unit.to_ascii_lowercase().parse()?)
        }
        _ => {
            let expected = "expected the words of an algorithm".to_owned();
            Err(Error::InvalidArgument { argument: "rule", expected })
        }
    }
}

/// Applies the options of a rule: `ALIGNED`, `SLOTS`, `ZONE` and `START`, each once.
fn with_options(mut rule: Rule, algorithm: &str, options: &[&str]) -> Result<Rule, String> {
    let text = |error: Error| error.to_string();
    let day = |text: &str| text.parse().unwrap_or(0);
    let (mut rest, mut used) = (options, Vec::new());
    while let [option, more @ ..] = rest {
        let option = option.to_ascii_uppercase();
        (rule, rest) = match (algorithm, &*option, more) {
            _ if used.contains(&option) => return Err(format!("a second {option}")),
            ("FIXED", "ALIGNED", more) => (rule.aligned().map_err(text)?, more),
            ("SLIDINGLOG", "SLOTS", [slots, more @ ..]) => {
                (rule.slots(slots.parse().unwrap_or(0)).map_err(text)?, more)
            }
            ("QUOTA", "ZONE", [zone, more @ ..]) => (rule.zone(zone).map_err(text)?, more),
            ("QUOTA", "START", [start, more @ ..]) => (rule.start(day(start)).map_err(text)?, more),
            (_, "COST" | "LEAVE" | "PARTIAL", _) => {
                return Err(format!("{option} comes with each request: remove it here"));
            }
            _ => return Err(format!("unknown option {option:?} of {algorithm}: remove it")),
        };
        used.push(option);
    }
    Ok(rule)
}

fn mark(algorithm: &str, values: &[&str]) -> String {
    let name = algorithm.to_ascii_lowercase();
    match (algorithm, values) {
        ("BACKOFF", _) => name,
        ("QUOTA", [_, unit]) => format!("{name}-{}", unit.to_ascii_lowercase()),
        (_, [.., period]) => match period.whole_us() {
            Some(us) if us.is_multiple_of(1_000_000) => format!("{name}-{}s", us / 1_000_000),
            us => format!("{name}-{}us", us.unwrap_or_default()),
        },
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::rule;

    #[test]
    fn words_become_the_rule_of_the_client() {
        let cases = [
            ("GCRA 20 10 1", "GCRA 20 10 1", "gcra-1s"),
            ("gcra 20 10 1m", "GCRA 20 10 60", "gcra-60s"),
            ("TOKENBUCKET 20 10 500ms", "TOKENBUCKET 20 10 500ms", "tokenbucket-500000us"),
            ("LEAKYBUCKET 20 10 1", "LEAKYBUCKET 20 10 1", "leakybucket-1s"),
            ("FIXED 100 1h", "FIXED 100 3600", "fixed-3600s"),
            ("FIXED 100 1h aligned", "FIXED 100 3600 ALIGNED", "fixed-3600s"),
            ("SLIDING 100 60", "SLIDING 100 60", "sliding-60s"),
            ("SLIDINGLOG 100 60 SLOTS 32", "SLIDINGLOG 100 60 SLOTS 32", "slidinglog-60s"),
            ("BACKOFF 5 1s 15m 1d", "BACKOFF 5 1 900 86400", "backoff"),
            ("QUOTA 9 Month START 15 ZONE UTC", "QUOTA 9 month ZONE UTC START 15", "quota-month"),
        ];
        for (text, words, mark) in cases {
            let written = rule("api", text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(
                format!("{:?}", written.rule).contains(&format!("api: {words},")),
                "{written:?}"
            );
            assert_eq!(written.mark, mark, "{text}");
        }
    }

    #[test]
    fn wrong_words_are_refused_by_name() {
        let cases = [
            ("", "expected words such as GCRA 20 10 1"),
            ("GRCA 20 10 1", "unknown algorithm \"GRCA\""),
            ("GCRA 20 10", "expected GCRA burst rate period"),
            ("GCRA 0 10 1", "invalid burst: expected an integer from 1"),
            ("GCRA 20 -1 1", "invalid rate: expected an integer, not \"-1\""),
            ("GCRA 20 +1 1", "invalid rate: expected an integer, not \"+1\""),
            ("GCRA 20 10 1w", "invalid period: expected a duration"),
            ("GCRA 20 10 1 COST 2", "COST comes with each request"),
            ("GCRA 20 10 1 ALIGNED", "unknown option \"ALIGNED\" of GCRA"),
            ("FIXED 5 1 ALIGNED ALIGNED", "a second ALIGNED"),
            ("SLIDINGLOG 5 1 SLOTS", "unknown option \"SLOTS\""),
            ("SLIDINGLOG 5 1 SLOTS 1", "invalid slots"),
            ("QUOTA 5 decade", "invalid unit: expected day"),
            ("QUOTA 5 month START 32", "invalid start"),
            ("LEASE 5 30", "a lease needs a holder"),
            ("USE search", "write `policy:`"),
        ];
        for (text, expected) in cases {
            let error = rule("api", text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
