//! The traffic of the pictures, the rules that decide it, and the allowed calls.

use support::{BASE_US, Client};

/// The time span of each picture.
pub const END_MS: i64 = 40_000;

/// The window of the rules, and the time in which a bucket or GCRA refills.
pub const WINDOW_MS: i64 = 10_000;

/// The end of the first window of FIXED and SLIDING. Their windows are aligned to the clock, and
/// traffic rarely begins with a window.
pub const FIRST_EDGE_MS: i64 = 2_000;

/// A named sequence of calls.
pub struct Traffic {
    pub name: &'static str,
    pub title: &'static str,
    /// The time span whose calls share a bar.
    pub bar_ms: i64,
    calls_ms: fn() -> Vec<i64>,
}

pub const STEADY: Traffic = Traffic {
    name: "steady",
    title: "Steady: a call every half second, against a limit of 10 in 10 s",
    bar_ms: 500,
    calls_ms: || (0..END_MS).step_by(500).collect(),
};

pub const BURSTY: Traffic = Traffic {
    name: "bursty",
    title: "Bursty: 12 calls at once, against a limit of 10 in 10 s",
    bar_ms: 1_000,
    calls_ms: || {
        // The pause between two groups of three bursts shows the difference between rules that
        // accumulate an allowance and rules that do not.
        let bursts_ms = [0, 5_000, 10_000, 25_000, 30_000, 35_000];
        bursts_ms.into_iter().flat_map(|at_ms| [at_ms; 12]).collect()
    },
};

pub const GREEDY: Traffic = Traffic {
    name: "greedy",
    title: "Greedy: five calls per second, against a limit of 10 in 10 s",
    bar_ms: 1_000,
    calls_ms: || (0..END_MS).step_by(200).collect(),
};

/// An algorithm with a limit of 10 in 10 s, or with the closest rule it has.
pub struct Rule {
    pub algorithm: &'static str,
    pub arguments: &'static str,
    /// A remark for the reader, printed in the picture.
    pub remark: &'static str,
    /// Whether the rule's windows are aligned to the clock.
    pub has_edges: bool,
}

pub const RULES: [Rule; 7] = [
    Rule::of("FIXED", "10 10s ALIGNED", "a new window forgets the last").with_edges(),
    Rule::of("SLIDING", "10 10s", "the last window fades out").with_edges(),
    Rule::of("SLIDINGLOG", "10 10s", "10 in any 10 s, exactly"),
    Rule::of("TOKENBUCKET", "10 10 10s", "saves up 10, then 1 per second"),
    Rule::of("LEAKYBUCKET", "10 10 10s", "a queue: one acts each second"),
    Rule::of("GCRA", "10 10 10s", "decides as TOKENBUCKET does"),
    Rule::of("BACKOFF", "10 1s 1m 1h", "10 free, then gaps that double"),
];

impl Rule {
    const fn of(algorithm: &'static str, arguments: &'static str, remark: &'static str) -> Self {
        Self { algorithm, arguments, remark, has_edges: false }
    }

    const fn with_edges(mut self) -> Self {
        self.has_edges = true;
        self
    }

    fn call(&self, traffic: &Traffic) -> String {
        let Self { algorithm, arguments, .. } = self;
        format!("RL.{algorithm} {}:{algorithm} {arguments}", traffic.name)
    }
}

/// A call and its reply.
struct Reply {
    at_ms: i64,
    is_allowed: bool,
    /// The time that an allowed call waits before it acts: 0, except with the leaky bucket.
    wait_ms: i64,
}

/// The replies of one rule to the traffic.
#[derive(Default)]
pub struct Passage(Vec<Reply>);

/// The numbers of calls that share a bar: those sent in its time span, and those that act in it.
#[derive(Clone, Copy, Default)]
pub struct Bar {
    pub allowed: i32,
    pub denied: i32,
    /// The allowed calls that act in this time span, even if they were sent earlier.
    pub acting: i32,
}

/// Makes the calls of the traffic with each rule.
pub fn play(client: &mut Client, traffic: &Traffic) -> [Passage; RULES.len()] {
    let mut passages: [Passage; RULES.len()] = Default::default();
    for at_ms in (traffic.calls_ms)() {
        client.freeze(BASE_US + (WINDOW_MS - FIRST_EDGE_MS + at_ms) * 1_000);
        for (rule, Passage(replies)) in RULES.iter().zip(&mut passages) {
            let [allowed, _, _, retry_after_ms, _] = client.decide(&rule.call(traffic));
            let is_allowed = allowed == 1;
            replies.push(Reply {
                at_ms,
                is_allowed,
                wait_ms: if is_allowed { retry_after_ms } else { 0 },
            });
        }
    }
    passages
}

impl Passage {
    /// Returns the time at which each allowed call acts.
    pub fn acts_ms(&self) -> Vec<i64> {
        let allowed = self.0.iter().filter(|reply| reply.is_allowed);
        allowed.map(|reply| reply.at_ms + reply.wait_ms).collect()
    }

    pub fn calls(&self) -> usize {
        self.0.len()
    }

    pub fn allowed(&self) -> usize {
        self.acts_ms().len()
    }

    /// Returns the largest number of calls that acted in any span as long as the window.
    pub fn densest(&self) -> usize {
        let acts_ms = self.acts_ms();
        let acting_from = |start_ms: &i64| {
            let window = *start_ms..start_ms + WINDOW_MS;
            acts_ms.iter().filter(|at_ms| window.contains(at_ms)).count()
        };
        acts_ms.iter().map(acting_from).max().unwrap_or(0)
    }

    /// Returns the bars in order, from the start to the end of the picture.
    pub fn bars(&self, bar_ms: i64) -> Vec<Bar> {
        let bar_at = |at_ms: i64| usize::try_from(at_ms / bar_ms).expect("time runs forward");
        let mut bars = vec![Bar::default(); bar_at(END_MS)];
        for reply in &self.0 {
            let bar = &mut bars[bar_at(reply.at_ms)];
            bar.allowed += i32::from(reply.is_allowed);
            bar.denied += i32::from(!reply.is_allowed);
        }
        // A call that waits beyond the end of the picture is not drawn.
        for at_ms in self.acts_ms().into_iter().filter(|at_ms| *at_ms < END_MS) {
            bars[bar_at(at_ms)].acting += 1;
        }
        bars
    }
}
