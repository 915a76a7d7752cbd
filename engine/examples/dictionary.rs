//! Prints the options of a call, and the words and states of each algorithm, as a dictionary for
//! libFuzzer: `scripts/fuzz.sh` adds them to the files in `fuzz/`.

use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::grammar::options::GivenOptions;
use redis_throttle_engine::oracle::{AnySubject, Key, Limits, example};

const LIMITS: Limits =
    Limits { capacity: 5, rate: 5, period_us: 60_000_000, aligned: false, slots: 1_024 };
const NOW_US: i128 = 1_700_000_000_000_000;

/// Prints an entry of the dictionary.
fn print(bytes: &[u8]) {
    let spelled: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    println!("\"{spelled}\"");
}

fn main() {
    println!("# The options of a call.");
    for name in GivenOptions::NAMES {
        print(format!(" {name} ").as_bytes());
    }
    for algorithm in Algorithm::ALL {
        let rule = format!(" {} {}", algorithm.name(), example(algorithm));
        println!("# {algorithm:?}: its rule, a state, and the head of a state.");
        print(rule.as_bytes());
        print(&rule.as_bytes()[1..]);
        let mut key = Key::default();
        key.call(&(AnySubject::of(algorithm).rule)(&LIMITS), NOW_US, 2);
        let state = key.bytes.expect("an allowed call stores a state");
        print(&state);
        print(&state[..2]);
    }
}
