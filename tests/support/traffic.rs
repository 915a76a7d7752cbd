//! Random calls of all [`ALGORITHMS`]. The same seed gives the same calls.

use super::{ALGORITHMS, Client, Random};

/// Rules of short and long periods. A log has to round its instants under the last rule.
const RULES: [(u64, &str); 4] = [(3, "500ms"), (20, "10"), (40, "1h"), (5_000, "30")];

const SUBJECTS: u64 = 6;

/// Returns a random call; four of six decide, and few ban. Each key has one algorithm, whose rule
/// changes sometimes.
fn any_call(random: &mut Random) -> String {
    let algorithm = random.pick(&ALGORITHMS);
    let subject = random.below(SUBJECTS);
    let key = format!("{}:{subject}", algorithm.name);
    let rule = if random.below(50) == 0 { random.below(4) } else { subject % 4 };
    let (limit, period) = RULES[rule as usize];
    match random.below(60) {
        0 => format!("DEL {key}"),
        1 => format!("PERSIST {key}"),
        2..=9 => algorithm.peek(&key, limit, period),
        10..=12 => format!("RL.INSPECT {key}"),
        13..=19 => format!("{} COST {}", algorithm.call(&key, limit, period), random.below(9)),
        20 => format!("RL.BLOCK {key} {}ms", 1 + random.below(2_000)),
        _ => algorithm.call(&key, limit, period),
    }
}

/// Returns a random step of the frozen clock: mostly short and forward, sometimes long or backward.
fn any_step(random: &mut Random) -> String {
    let step_ms = match random.below(40) {
        0 => format!("-{}", 1 + random.below(7_200_000)),
        1 => (1 + random.below(7_200_000)).to_string(),
        _ => (1 + random.below(300)).to_string(),
    };
    format!("RL.DEBUG CLOCK ADVANCE {step_ms}ms")
}

/// Makes `calls` random calls on a frozen clock, moves it at random, and returns the number of
/// allowed calls. The caller must have frozen the clock.
pub fn random_traffic(client: &mut Client, random: &mut Random, calls: usize) -> usize {
    let lines = (0..calls).map(|_| {
        let steps = random.below(4) == 0;
        if steps { any_step(random) } else { any_call(random) }
    });
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let batch = lines.map(words).collect::<Vec<_>>();
    let replies = client.pipeline(&batch);
    let allowed = replies.iter().filter_map(super::integers).filter(|reply| reply[0] == 1);
    allowed.count()
}
