//! The cost of taking and releasing leases, compared with scripts over a sorted set. It is measured
//! with few holders and with many.
//!
//! `redis-benchmark` cannot send pairs of commands that belong together. So this program sends the
//! load itself, as pipelines on one connection, and measures the CPU time of the server.

use crate::contestants::{load_library, load_script};
use crate::node::{Node, command_of};
use crate::rounds::median;
use redis::{Connection, ConnectionLike as _, Value};

/// The number of pairs of calls in a pipeline. It is large, so that the cost of waking the server
/// is negligible.
const PIPELINE: usize = 128;
/// The number of pipelines in one run.
const RUN: usize = 32;

/// The numbers of holders during the measurement.
pub const HOLDERS: [u64; 3] = [10, 1_000, 100_000];

/// The figures for one number of holders: each is a median over all rounds.
pub struct Figures {
    /// The CPU time of the server to take and release a lease, in microseconds.
    pub own_us: f64,
    /// The CPU time of the server to do the same with the scripts, in microseconds.
    pub script_us: f64,
    /// The scripts' time divided by the module's in the same round.
    pub ratio: f64,
    /// The module's time divided by its time with the fewest holders in the same round.
    pub growth: f64,
    /// The time of the library's functions divided by that of the scripts in the same round.
    pub library: f64,
    /// The time of the library's script divided by that of the scripts in the same round.
    pub library_script: f64,
}

/// A contestant that takes and releases leases on one key.
struct Contestant {
    pipeline: Vec<u8>,
    /// The CPU time of the server for a pair of calls, in each round.
    rounds_us: Vec<f64>,
}

/// Measures with every number of holders of [`HOLDERS`] in each round, one after the other.
pub fn measure(node: &Node, rounds: usize) -> Vec<Figures> {
    let mut connection = node.connect();
    let [lease, release] = [include_str!("lua/lease.lua"), include_str!("lua/release.lua")]
        .map(|script| load_script(node, script));
    let sha = load_library(node);
    let mut pairs = HOLDERS.map(|holders| {
        let (own_key, script_key) = (format!("le:{holders}"), format!("lu:{holders}"));
        let [of_function, of_library_script] = ["lf", "ls"].map(|mark| format!("{mark}:{holders}"));
        let take = |key: &str, id: &str| words(&["RL.LEASE", key, id, "1000000", "1d"]);
        let take_by_script = |key: &str, id: &str| {
            words(&["EVALSHA", &lease, "1", key, id, "1000000", "86400000000"])
        };
        let take_by_function =
            |key: &str, id: &str| words(&["FCALL", "rl_lease", "1", key, id, "1000000", "1d"]);
        let take_by_library_script =
            |key: &str, id: &str| words(&["EVALSHA", &sha, "1", key, "LEASE", id, "1000000", "1d"]);
        for holder in 0..holders {
            let id = format!("holder-{holder}");
            let own = [&own_key, &of_function, &of_library_script].map(|key| take(key, &id));
            let all = [own.concat(), take_by_script(&script_key, &id)].concat();
            send(&mut connection, &all, 4);
        }
        let give = |key: &str, id: &str| words(&["RL.RELEASE", key, id]);
        let give_by_script = |key: &str, id: &str| words(&["EVALSHA", &release, "1", key, id]);
        [
            Contestant::new(|id| [take(&own_key, id), give(&own_key, id)].concat()),
            Contestant::new(|id| {
                [take_by_script(&script_key, id), give_by_script(&script_key, id)].concat()
            }),
            Contestant::new(|id| {
                let give = words(&["FCALL", "rl_release", "1", &of_function, id]);
                [take_by_function(&of_function, id), give].concat()
            }),
            Contestant::new(|id| {
                let key = &of_library_script;
                let give = words(&["EVALSHA", &sha, "1", key, "RELEASE", id]);
                [take_by_library_script(key, id), give].concat()
            }),
        ]
    });
    for _ in 0..=rounds {
        pairs.as_flattened_mut().iter_mut().for_each(|one| one.run(node, &mut connection));
    }
    let fewest = pairs[0][0].rounds_us.clone();
    pairs.iter().map(|all| figures(all, &fewest)).collect()
}

fn figures(all: &[Contestant; 4], fewest: &[f64]) -> Figures {
    // The first round is a warm-up.
    let after_first = |one: &Contestant| one.rounds_us[1..].to_vec();
    let [own, script, library, library_script] = all.each_ref().map(after_first);
    let by = |dividend: &[f64], divisor: &[f64]| {
        median(dividend.iter().zip(divisor).map(|(dividend, divisor)| dividend / divisor))
    };
    Figures {
        own_us: median(own.iter().copied()),
        script_us: median(script.iter().copied()),
        ratio: by(&script, &own),
        growth: by(&own, &fewest[1..]),
        library: by(&library, &script),
        library_script: by(&library_script, &script),
    }
}

impl Contestant {
    fn new(pair: impl Fn(&str) -> Vec<u8>) -> Self {
        let pairs = (0..PIPELINE).map(|number| pair(&format!("job-{number}")));
        Self { pipeline: pairs.flatten().collect(), rounds_us: Vec::new() }
    }

    fn run(&mut self, node: &Node, connection: &mut Connection) {
        let before_us = node.cpu_us();
        for _ in 0..RUN {
            for [taken, given] in send(connection, &self.pipeline, 2 * PIPELINE).as_chunks().0 {
                let is_taken = matches!(taken, Value::Array(five) if five[0] == Value::Int(1));
                assert!(is_taken && *given == Value::Int(1), "{taken:?} {given:?}");
            }
        }
        self.rounds_us.push((node.cpu_us() - before_us) / (RUN * PIPELINE) as f64);
    }
}

fn words(words: &[&str]) -> Vec<u8> {
    command_of(words).get_packed_command()
}

fn send(connection: &mut Connection, packed: &[u8], replies: usize) -> Vec<Value> {
    connection.req_packed_commands(packed, 0, replies).expect("the server replies")
}
