//! Times the lab: `make bench-lab`.
//!
//! Each figure is the median of several rounds, with the fastest and the slowest one.

use redis_throttle_engine::time::{Instant as EngineInstant, Span};
use redis_throttle_lab::page::result_body::result_body;
use redis_throttle_lab::page::serving::{Patience, Server};
use redis_throttle_lab::rules::Choice;
use redis_throttle_lab::simulation::retries::Retries;
use redis_throttle_lab::simulation::{START, Scenario};
use redis_throttle_lab::traffic::{CALLS_MAX, Shape, Traffic};
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;

/// Four choices, one rule each.
const FOUR_RULES: [&str; 4] =
    ["GCRA 60 100 1s", "FIXED 100 1s", "SLIDINGLOG 100 1s", "TOKENBUCKET 60 100 1s"];

fn main() {
    engine();
    simulation();
}

/// Prints the median, the least and the most of a measure.
fn print(name: &str, unit: &str, mut rounds: Vec<f64>) {
    rounds.sort_by(f64::total_cmp);
    let (least, most) = (rounds[0], rounds[rounds.len() - 1]);
    let median = rounds[rounds.len() / 2];
    println!("{name:<66} {median:>9.1} {unit:<16} ({least:.1} to {most:.1})");
}

/// Measures a function in ms, after a round that is not counted.
fn times_ms(mut run: impl FnMut()) -> Vec<f64> {
    run();
    let round = |_| {
        let started = Instant::now();
        run();
        ms(started.elapsed())
    };
    (0..ROUNDS).map(round).collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Decisions of the engine on one thread, on the bytes of keys.
fn engine() {
    for rule in ["GCRA 60 100 1s", "TOKENBUCKET 60 100 1s", "FIXED 100 1s", "SLIDINGLOG 100 1s"] {
        let choice = Choice::parse(&[rule]).expect("a valid rule");
        let rounds = times_ms(|| {
            let mut states = [Vec::new()];
            for call in 0..CALLS_MAX as u64 {
                let now: EngineInstant = START.after(Span::from_us(600 * call));
                black_box(choice.decide(&mut states, now)).expect("a state of the rule");
            }
        });
        let per_ms = rounds.into_iter().map(|time_ms| CALLS_MAX as f64 / time_ms).collect();
        print(&format!("engine, one thread, {rule}"), "decisions per ms", per_ms);
    }
}

/// The scenario of the page with the most calls.
fn largest(retries: Retries) -> Scenario {
    // With retries, half of the calls are offered.
    let offered = if retries == Retries::None { CALLS_MAX } else { CALLS_MAX / 2 };
    Scenario {
        traffic: Traffic {
            shape: Shape::Drawn(vec![(0.0, 0.0), (0.5, offered as f64 / 30.0), (1.0, 0.0)]),
            duration_ms: 60_000,
            seed: 1,
            keys: 3,
        },
        cost: 1,
        retries,
        watch: 0,
        choices: FOUR_RULES.map(|rule| vec![rule.to_owned()]).to_vec(),
    }
}

/// The response to `/simulate`: built in the program, and received over HTTP.
fn simulation() {
    for (name, retries) in
        [("none", Retries::None), ("obey", Retries::Obey), ("hammer", Retries::Hammer)]
    {
        let scenario = largest(retries);
        let pieces = result_body(&scenario).expect("few calls");
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let name = format!("simulation of 100,000 calls, 4 choices, retries {name}");
        let rounds = times_ms(|| drop(black_box(result_body(&scenario))));
        print(&format!("{name}, {:.1} MB", bytes as f64 / 1e6), "ms", rounds);
    }
    let server = Server::bind("127.0.0.1:0", Patience::default()).expect("a free port");
    let address = server.address();
    thread::spawn(move || server.run());
    let rounds = times_ms(|| {
        assert!(received(address) > 1_000_000, "a response with columns");
    });
    print("the same with retries none, over HTTP on the loopback interface", "ms", rounds);
}

/// Sends the largest scenario to the page's server, and returns the bytes of the response.
fn received(address: SocketAddr) -> usize {
    let rules = FOUR_RULES.map(|rule| format!("{{\"rules\": [\"{rule}\"]}}")).join(", ");
    let rate = CALLS_MAX as f64 / 30.0;
    let body = format!(
        "{{\"traffic\": {{\"shape\": \"drawn\", \"points\": [[0, 0], [0.5, {rate}], [1, 0]], \
         \"duration_ms\": 60000, \"seed\": 1, \"keys\": 3, \"cost\": 1, \"retries\": \"none\"}}, \
         \"watch\": 0, \"choices\": [{rules}]}}"
    );
    let head = format!(
        "POST /simulate HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all((head + &body).as_bytes()).expect("the server reads");
    let mut response = Vec::with_capacity(16 << 20);
    stream.read_to_end(&mut response).expect("a response")
}
