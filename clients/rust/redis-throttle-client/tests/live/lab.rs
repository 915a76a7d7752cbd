//! The driver on `redis-throttle-lab serve`, which makes decisions without a Redis.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use redis_throttle_client::{Limiter, Rule, Source};

use crate::patient;
use crate::server::root;

/// A started lab, which is ended on drop.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn multiplexed_connections_are_denied_by_the_lab() {
    let built = || root().join("target/release/redis-throttle-lab");
    let program = env::var_os("RL_LAB").map_or_else(built, Into::into);
    if !program.exists() && env::var_os("CI").is_none() {
        return eprintln!("skipped, no lab: see RL_LAB");
    }
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut lab = Lab(command.spawn().expect("a lab"));
    let mut line = String::new();
    let output = lab.0.stdout.take().expect("an output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let (_, address) = line.split_once("redis://").expect("an address");
    let (address, _) = address.split_once(',').expect("an address");
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://user:secret@{address}/0?protocol={protocol}");
        let client = redis::Client::open(url).expect("a client");
        let limiter = Limiter::with_options(client, patient()).unwrap();
        let once = Rule::gcra(protocol, 1, 1, "1h").unwrap();
        for allowed in [true, false] {
            let decision = limiter.check(once.of("42")).await.unwrap();
            assert_eq!((decision.allowed, decision.source), (allowed, Source::Server));
        }
    }
}
