//! `RL.METRICS`, parsed as Prometheus does.

use std::collections::BTreeMap;

use super::{ALGORITHMS, Client, text};

/// The text of each sample's value, by the sample's name with labels.
pub type Samples = BTreeMap<String, String>;

/// Returns the samples of `RL.METRICS`. A duplicate sample fails the test.
pub fn scrape(client: &mut Client) -> Samples {
    samples(&text(&client.run("RL.METRICS")))
}

/// Returns the samples in a text.
pub fn samples(text: &str) -> Samples {
    let mut samples = Samples::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        let former = samples.insert(name.to_owned(), value.to_owned());
        assert_eq!(former, None, "{name} is there twice");
    }
    samples
}

/// Returns the value of a counter that each policy has once; `None` if the policy is omitted.
pub fn of_policy(samples: &Samples, family: &str, policy: &str, variant: &str) -> Option<u64> {
    let name = format!("rl_policy_{family}{{policy=\"{policy}\",variant=\"{variant}\"}}");
    samples.get(&name).map(|value| value.parse().expect("a number"))
}

/// Returns how many calls of a policy had this outcome; `None` if the sample is omitted.
pub fn decisions(samples: &Samples, policy: &str, variant: &str, outcome: &str) -> Option<u64> {
    let labels = format!("policy=\"{policy}\",variant=\"{variant}\",outcome=\"{outcome}\"");
    let name = format!("rl_policy_decisions_total{{{labels}}}");
    samples.get(&name).map(|value| value.parse().expect("a number"))
}

/// Makes calls with every outcome, and a call with an error.
pub fn traffic(client: &mut Client) {
    for algorithm in ALGORITHMS {
        for cost in [1, 1, 2] {
            client.decide(&format!("{} COST {cost}", algorithm.call(algorithm.name, 2, "1h")));
        }
    }
    client.run("RL.LEASE lease id 1 1h");
    client.run("RL.LEASE lease other 1 1h");
    client.call(&["RL.ALL", "a", "GCRA 1 1 1h", "b", "FIXED 5 1h"]);
    client.error("RL.GCRA k 0 1 1");
}
