//! Runs the programs and calls that the pages show for client libraries, unchanged, against a real
//! server, with lost replies, and in a cluster.
//!
//! ```text
//! scripts/fetch-clients.sh .cache/clients
//! cargo test --locked --test snippets
//! ```

#[path = "snippets/demo.rs"]
mod demo;
#[path = "snippets/go.rs"]
mod go;
#[path = "snippets/java.rs"]
mod java;
#[path = "snippets/lossy.rs"]
mod lossy;
#[path = "snippets/pages.rs"]
mod pages;
#[path = "snippets/redis_rs.rs"]
mod redis_rs;

use lossy::{Loss, LossyWay};
use pages::Language::{Go, JavaScript, Python};
use std::thread;
use std::time::Instant;
use support::cluster::Cluster;
use support::{BASE_US, Server, eventually, integers, raw_error};

const NO_REPLY: &str = "no reply: allow or deny, as decided for this rule\n";

/// The page on clients.
const CLIENTS: &str = "docs/clients/drivers.md";

/// A driver for which the page on clients shows a program that this suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Snippet {
    RedisPy,
    NodeRedis,
    Ioredis,
    RedisRs,
    GoRedis,
    Rueidis,
}

const SNIPPETS: [Snippet; 6] = [
    Snippet::RedisPy,
    Snippet::NodeRedis,
    Snippet::Ioredis,
    Snippet::RedisRs,
    Snippet::GoRedis,
    Snippet::Rueidis,
];

impl Snippet {
    /// Runs the program against a server on this port, and returns its output.
    fn run(self, port: u16) -> String {
        let (language, mark) = match self {
            Self::RedisPy => (Python, "import redis"),
            Self::NodeRedis => (JavaScript, "from 'redis'"),
            Self::Ioredis => (JavaScript, "import { Redis } from 'ioredis'"),
            Self::GoRedis => (Go, "redis.NewClient"),
            Self::Rueidis => (Go, "rueidis.NewClient"),
            Self::RedisRs => {
                let reply = redis_rs::check(&format!("redis://127.0.0.1:{port}"));
                return reply.map_or_else(|_| NO_REPLY.to_owned(), |line| line + "\n");
            }
        };
        pages::run(language, &pages::block(CLIENTS, language, mark), port)
    }
}

fn server_on_tcp() -> Server {
    Server::setup().with_tcp().start()
}

/// Returns the number of `RL.GCRA` calls that the server has decided.
fn decisions(server: &Server) -> i64 {
    let mut client = server.client();
    client.info_number("rl", "rl_gcra_allowed") + client.info_number("rl", "rl_gcra_denied")
}

/// Runs a program whose replies are lost. Returns the number of calls that the server decided, and
/// the output.
fn run_and_count(loss: Loss, program: impl FnOnce(u16) -> String) -> (i64, String) {
    let server = server_on_tcp();
    let way = LossyWay::to(server.port(), loss);
    let printed = program(way.port);
    let sent = eventually("the program has left", || way.calls_when_all_have_left());
    let sent = i64::try_from(sent).expect("a few calls");
    eventually("the server has decided all it got", || (decisions(&server) >= sent).then_some(()));
    (decisions(&server), printed)
}

#[test]
fn page_shows_the_rust_program_that_is_compiled_here() {
    let compiled = include_str!("snippets/redis_rs.rs");
    assert!(pages::page(CLIENTS).contains(&format!("\n```rust\n{compiled}```\n")));
}

/// Formats a reply as the pages do: integers separated by spaces, or the text of an error.
fn format_reply(reply: &redis::Value) -> String {
    match integers(reply) {
        Some(integers) => integers.map(|integer| integer.to_string()).join(" "),
        None => raw_error(reply).unwrap_or_else(|| panic!("{reply:?}")),
    }
}

#[test]
fn page_on_redis_gcra_shows_the_replies_of_a_real_server() {
    let page = "docs/alternatives/redis-gcra.md";
    let setting = "\nloadmodule /usr/lib/redis/modules/libredis_throttle.so\nrl.gcra yes\n";
    assert!(pages::page(page).contains(setting), "the lines of the configuration");
    let server = Server::setup().line("rl.gcra yes").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let calls = pages::calls(page, "## The command");
    assert_eq!(calls.len(), 4, "{calls:?}");
    for (call, reply) in &calls {
        assert_eq!(format_reply(&client.run(call)), *reply, "{call}");
    }
}

#[test]
fn page_on_moving_from_redis_cell_shows_the_replies_of_a_real_server() {
    let page = "docs/alternatives/redis-cell.md";
    let text = pages::page(page);
    let setting = "\nloadmodule /usr/lib/redis/modules/libredis_throttle.so\nrl.redis-cell yes\n";
    assert!(text.contains(setting), "the lines of the configuration");
    let server = Server::setup().line("rl.redis-cell yes").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut calls = pages::calls(page, "## Step 1: the same `CL.THROTTLE`");
    let pairs = pages::calls(page, "## Step 2: from `CL.THROTTLE` to `RL.GCRA`");
    calls.extend_from_slice(&pairs);
    assert!(calls.len() >= 15, "{calls:?}");
    for command in ["CL.THROTTLE", "RL.GCRA", "RL.PEEK"] {
        assert!(calls.iter().any(|(call, _)| call.starts_with(command)), "{command}");
    }
    for (call, reply) in &calls {
        assert_eq!(format_reply(&client.run(call)), *reply, "{call}");
    }
    // Each pair of calls has the same verdict and the same numbers, in the two forms.
    let mut compared = 0;
    for pair in pairs.chunks_exact(2) {
        let numbers = |reply: &str| -> Vec<i64> {
            reply.split(' ').map(|number| number.parse().expect("a number")).collect()
        };
        let (theirs, ours) = (numbers(&pair[0].1), numbers(&pair[1].1));
        assert_eq!(theirs[0], 1 - ours[0], "{pair:?}: limited, and allowed");
        assert_eq!(theirs[1..3], ours[1..3], "{pair:?}");
        assert_eq!(theirs[4] * 1_000, ours[4], "{pair:?}");
        let never_or_now = if theirs[0] == 0 { 0 } else { theirs[3].max(-1) };
        assert_eq!(ours[3], if never_or_now > 0 { theirs[3] * 1_000 } else { never_or_now });
        compared += 1;
    }
    assert_eq!(compared, 5);
}

#[test]
fn programs_of_the_page_are_allowed_until_they_are_denied() {
    for snippet in SNIPPETS {
        let server = server_on_tcp();
        let mut client = server.client();
        client.freeze(BASE_US);
        for (taken, line) in [(0, "allowed, 5 left\n"), (6, "denied, retry in 6000 ms\n")] {
            // The program waits for 250 ms, and a busy machine may need longer. That call may have
            // counted, so the key is new for each try.
            let printed = eventually("a reply in time", || {
                client.run("DEL user:42");
                assert!(client.allows(&format!("RL.GCRA user:42 6 10 60 COST {taken}")));
                Some(snippet.run(server.port())).filter(|printed| printed != NO_REPLY)
            });
            assert_eq!(printed, line, "{snippet:?}");
        }
    }
}

/// Repeats a run of a program that gives up after 250 ms, until the server has got its call: on a
/// busy machine it may give up before it sends one.
fn repeat_until_sent(run: impl Fn() -> (i64, String)) -> (i64, String) {
    eventually("a call is sent in time", || Some(run()).filter(|(times, _)| *times > 0))
}

#[test]
fn program_of_the_page_reports_a_lost_reply_and_is_counted_once() {
    for snippet in SNIPPETS {
        for loss in [Loss::Cut, Loss::Silence] {
            let outcome = repeat_until_sent(|| run_and_count(loss, |port| snippet.run(port)));
            assert_eq!(outcome, (1, NO_REPLY.to_owned()), "{snippet:?}, {loss:?}");
        }
    }
}

#[test]
fn call_with_a_lost_reply_counts_eleven_times_with_the_defaults_of_redis_py() {
    let program = "import redis\n\
        try:\n    redis.Redis(port=7777).execute_command('RL.GCRA', 'user:42', 6, 10, 60)\n\
        except redis.RedisError:\n    print('lost')\n";
    let (times, printed) = run_and_count(Loss::Cut, |port| pages::run(Python, program, port));
    assert_eq!((times, printed.as_str()), (11, "lost\n"));
}

#[test]
fn call_is_repeated_until_a_reply_arrives_with_the_defaults_of_ioredis() {
    let program = "import { Redis } from 'ioredis';\n\
        const client = new Redis(7777);\n\
        client.on('error', () => {});\n\
        console.log((await client.call('RL.GCRA', 'user:42', 100, 1, '1h'))[2]);\n\
        client.disconnect();\n";
    let loss = Loss::CutFirst(21);
    let (times, printed) = run_and_count(loss, |port| pages::run(JavaScript, program, port));
    assert_eq!((times, printed.as_str()), (22, "78\n"));
}

/// Returns how long a lost call lasted, in whole seconds. The bounds of the tests have some seconds
/// for a busy machine.
fn seconds(printed: &str) -> u64 {
    let seconds = printed.strip_prefix("lost after ").and_then(|rest| rest.strip_suffix(" s\n"));
    seconds.and_then(|seconds| seconds.parse().ok()).expect(printed)
}

/// Makes one call with the default options of a driver in Go to a server that falls silent. Returns
/// the number of calls that the server decided, and how long the call lasted, in whole seconds.
fn silent(driver: &str) -> (i64, u64) {
    let (times, printed) =
        run_and_count(Loss::Silence, |port| go::calls(&[driver, &port.to_string(), "1"]));
    (times, seconds(&printed))
}

#[test]
fn call_counts_four_times_and_lasts_twenty_seconds_with_the_defaults_of_go_redis() {
    let cut = |port: u16| go::calls(&["go-redis", &port.to_string(), "1"]);
    assert_eq!(run_and_count(Loss::Cut, cut).0, 4);
    let (times, seconds) = silent("go-redis");
    assert_eq!(times, 4);
    // Four times 5 s, and the pauses before three of them.
    assert!((20..=26).contains(&seconds), "{seconds} s");
}

#[test]
fn call_counts_once_and_lasts_ten_seconds_with_the_defaults_of_rueidis() {
    let cut = |port: u16| go::calls(&["rueidis", &port.to_string(), "1"]);
    assert_eq!(run_and_count(Loss::Cut, cut).0, 1);
    let (times, seconds) = silent("rueidis");
    assert_eq!(times, 1);
    assert!((10..=16).contains(&seconds), "{seconds} s");
}

#[test]
fn lost_call_of_a_cluster_client_in_go_counts_as_the_page_says() {
    let cluster = Cluster::start();
    let decided = || cluster.nodes.iter().map(decisions).sum::<i64>();
    let node = &cluster.nodes[cluster.settled_owner("user:0")];
    for (driver, times) in [("go-redis-cluster", 4), ("go-redis-cluster-once", 1), ("rueidis", 1)] {
        let before = decided();
        let way = LossyWay::to(node.port(), Loss::Cut);
        let (port, lossy) = (node.port().to_string(), way.port.to_string());
        assert!(go::calls(&[driver, &port, "1", &lossy]).starts_with("lost"), "{driver}");
        let sent = eventually("the program has left", || way.calls_when_all_have_left());
        let sent = before + i64::try_from(sent).expect("a few calls");
        eventually("the node has decided all it got", || (decided() >= sent).then_some(()));
        assert_eq!(decided() - before, times, "{driver}");
    }
}

#[test]
fn call_is_repeated_until_a_reply_arrives_with_the_defaults_of_lettuce() {
    let replied = (22, "replied\n".to_owned());
    assert_eq!(java::one_call("lettuce", Loss::CutFirst(21)), replied);
    let cluster = Cluster::start();
    assert_eq!(java::one_call_in(&cluster, "lettuce-cluster", Loss::CutFirst(21)), replied);
}

#[test]
fn call_counts_once_or_in_a_cluster_five_times_with_the_defaults_of_jedis() {
    assert_eq!(java::one_call("jedis", Loss::Cut).0, 1);
    let (times, printed) = java::one_call("jedis", Loss::Silence);
    assert_eq!(times, 1);
    assert!((2..=8).contains(&seconds(&printed)), "{printed}");
    assert_eq!(java::one_call_in(&Cluster::start(), "jedis-cluster", Loss::Cut).0, 5);
}

#[test]
fn call_counts_five_times_and_lasts_twenty_seconds_with_the_defaults_of_redisson() {
    let (times, printed) = java::one_call("redisson", Loss::Silence);
    assert_eq!(times, 5);
    // Five times 3 s, and pauses of random length before four of them.
    assert!((18..=30).contains(&seconds(&printed)), "{printed}");
}

#[test]
fn lost_call_counts_once_with_the_settings_of_the_page_for_java() {
    // With its default, Jedis waits for 2 s, and the others wait longer.
    let is_once = |(times, printed): (i64, String)| times == 1 && seconds(&printed) < 2;
    for driver in ["lettuce-once", "jedis-once", "redisson-once"] {
        for loss in [Loss::Cut, Loss::Silence] {
            assert!(
                is_once(repeat_until_sent(|| java::one_call(driver, loss))),
                "{driver}, {loss:?}"
            );
        }
    }
    let cluster = Cluster::start();
    for driver in ["jedis-cluster-once", "redisson-cluster-once"] {
        let outcome = repeat_until_sent(|| java::one_call_in(&cluster, driver, Loss::Cut));
        assert!(is_once(outcome), "{driver}");
    }
}

/// Returns the number of redirections that the nodes have sent.
fn redirections(cluster: &Cluster) -> i64 {
    let of_node = |node: &Server| {
        let errors = node.client().info("errorstats");
        let moved = errors.get("errorstat_MOVED").and_then(|count| count.strip_prefix("count="));
        moved.map_or(0, |count| count.parse::<i64>().expect("a count"))
    };
    cluster.nodes.iter().map(of_node).sum()
}

/// Runs a program that makes sixty calls on sixty keys. Returns the number of redirections.
fn count_redirected(cluster: &Cluster, program: impl FnOnce(u16) -> String) -> i64 {
    let before = redirections(cluster);
    let decided = || cluster.nodes.iter().map(decisions).sum::<i64>();
    let decided_before = decided();
    program(cluster.nodes[0].port());
    assert_eq!(decided() - decided_before, 60);
    redirections(cluster) - before
}

#[test]
fn redis_py_and_node_redis_call_the_node_that_has_the_key() {
    let cluster = Cluster::start();
    let python = "from redis.cluster import RedisCluster\n\
        cluster = RedisCluster(host='127.0.0.1', port=7777)\n\
        for n in range(60):\n    cluster.execute_command('RL.GCRA', f'user:{n}', 6, 10, 60)\n";
    assert_eq!(count_redirected(&cluster, |port| pages::run(Python, python, port)), 0);
    let node = "import { createCluster } from 'redis';\n\
        const cluster = createCluster({ rootNodes: [{ url: 'redis://127.0.0.1:7777' }] });\n\
        await cluster.connect();\n\
        for (let n = 0; n < 60; n++)\n\
          await cluster.sendCommand(`user:${n}`, false,\n\
            ['RL.GCRA', `user:${n}`, '6', '10', '60']);\n\
        process.exit();\n";
    assert_eq!(count_redirected(&cluster, |port| pages::run(JavaScript, node, port)), 0);
}

#[test]
fn go_redis_and_rueidis_call_the_node_that_has_the_key() {
    let cluster = Cluster::start();
    for driver in ["go-redis-cluster", "go-redis-cluster-once", "rueidis"] {
        let calls = |port: u16| go::calls(&[driver, &port.to_string(), "60"]);
        assert_eq!(count_redirected(&cluster, calls), 0, "{driver}");
    }
}

#[test]
fn lettuce_jedis_and_redisson_call_the_node_that_has_the_key() {
    let cluster = Cluster::start();
    for driver in ["lettuce-cluster", "jedis-cluster", "redisson-cluster"] {
        let calls = |port: u16| java::run("Calls", &[driver, &port.to_string(), "60"]);
        assert_eq!(count_redirected(&cluster, calls), 0, "{driver}");
    }
}

#[test]
fn ioredis_calls_the_right_node_and_adds_its_prefix_only_with_the_wrapper_of_the_page() {
    let cluster = Cluster::start();
    let plain = "import { Cluster } from 'ioredis';\n\
        const cluster = new Cluster([{ port: 7777 }], { keyPrefix: 'app:' });\n\
        for (let n = 0; n < 60; n++) await cluster.call('RL.GCRA', `user:${n}`, 6, 10, 60);\n\
        cluster.disconnect();\n";
    // ioredis sends each call to one of three nodes at random, so about forty of sixty are
    // redirected.
    let moved = count_redirected(&cluster, |port| pages::run(JavaScript, plain, port));
    assert!((20..=58).contains(&moved), "{moved} of 60 were redirected");
    let mut client = cluster.client();
    let mut exists = |key: &str| client.call(cluster.slot(key), &["EXISTS", key]);
    assert_eq!(exists("user:7"), redis::Value::Int(1));
    assert_eq!(exists("app:user:7"), redis::Value::Int(0));

    let printed = pages::block(CLIENTS, JavaScript, "extends Command");
    let more = "for (let n = 1; n < 60; n++)\n\
        await limit(cluster, 'RL.GCRA', `user:${n}`, 6, 10, 60);\n\
        const rules = ['{7}:user', 'GCRA 6 10 60', '{7}:tenant', 'FIXED 8 60 COST 4'];\n\
        await limit(cluster, 'RL.ALL', ...rules);\n\
        cluster.disconnect();\n";
    let wrapped = printed + more;
    assert_eq!(count_redirected(&cluster, |port| pages::run(JavaScript, &wrapped, port)), 0);
    for key in ["app:user:7", "app:{7}:user", "app:{7}:tenant"] {
        assert_eq!(exists(key), redis::Value::Int(1), "{key}");
    }
    assert_eq!(exists("{7}:tenant"), redis::Value::Int(0));
}

#[test]
fn example_workers_in_docs_leases_release_their_lease_and_say_when_all_are_held() {
    for (language, mark) in [(Python, "RL.RENEW"), (JavaScript, "RL.RENEW")] {
        let server = server_on_tcp();
        let program = pages::block("docs/leases.md", language, mark);
        let run = || pages::run(language, &program, server.port());
        assert_eq!(run(), "exported, 2 more could run\n");
        let mut client = server.client();
        assert_eq!(client.info_number("rl", "rl_release_allowed"), 1);
        assert_eq!(client.integer("DBSIZE"), 0);
        for holder in 0..3 {
            assert!(client.allows(&format!("RL.LEASE exports:7 other-{holder} 3 1h")));
        }
        let busy = run();
        assert!(busy.starts_with("busy: retry within ") && busy.ends_with(" ms\n"), "{busy}");
    }
}

/// Runs a page's worker with a TTL of 3 s and a minute of work. The worker gets no more replies
/// after it took its lease, or after two renewals.
#[test]
fn example_worker_in_docs_leases_stops_when_its_renewals_get_no_reply() {
    let slower = [
        (Python, "    pass\n", "    time.sleep(0.1)\n"),
        (JavaScript, "part) {}", "part) { await new Promise((done) => setTimeout(done, 100)); }"),
    ];
    let stops = |language, (write, slow_write), replies: usize| {
        let server = server_on_tcp();
        let way = LossyWay::to(server.port(), Loss::SilenceAfter(replies));
        let program = pages::block("docs/leases.md", language, "RL.RENEW");
        let program = program.replace(write, slow_write).replace("3, 60", "3, 3");
        let program = program.replace("=3)", "=600)").replace("exporting(3)", "exporting(600)");
        let began = Instant::now();
        assert_eq!(
            pages::run(language, &program, way.port),
            "stopped: another worker may have the permit\n"
        );
        assert!(began.elapsed().as_secs() < 30, "it went on");
        let mut client = server.client();
        assert_eq!(client.info_number("rl", "rl_lease_allowed"), 1);
        let renewed = client.info_number("rl", "rl_renew_allowed");
        assert!(renewed >= replies as i64 - 1, "{renewed} renewals");
    };
    thread::scope(|scope| {
        for (language, write, slow_write) in slower {
            for replies in [1, 3] {
                scope.spawn(move || stops(language, (write, slow_write), replies));
            }
        }
    });
}
