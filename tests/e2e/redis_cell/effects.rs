//! The effects of `CL.THROTTLE`. A denied call has none. The effects of an allowed call reach
//! replicas, files and watchers, as with every other command of the module.

use std::fs;
use std::sync::Barrier;
use std::thread;

use redis::Value;

use super::replies::{arrival_ns, setup};
use support::replicas::replica_with;
use support::{BASE_US, Random, Reply, Server, eventually, integers, wait_for_offset};

const CALL: &str = "CL.THROTTLE k 1 2 60";

#[test]
fn effect_of_an_allowed_call_is_its_state_and_an_absolute_expiry() {
    let server = setup().start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    let mut expected_ns = BASE_US * 1_000;
    for _ in 0..2 {
        assert_eq!(client.decide(CALL)[0], 0);
        expected_ns += 30_000_000_000;
        assert_eq!(arrival_ns(&mut client, "k"), expected_ns);
        let expiry_ms = client.integer("PEXPIRETIME k").to_string();
        let digits = expected_ns.to_string();
        let words = ["SET", "k", &digits, "PXAT", &expiry_ms].map(|word| word.as_bytes().to_vec());
        assert_eq!(stream.effects(&mut client), [words.to_vec()]);
    }
    // On the real clock, too, the key expires at its arrival time.
    client.integer("RL.DEBUG CLOCK RESUME");
    client.integer("DEL k");
    assert_eq!(client.decide(CALL)[0], 0);
    let excess_ns = client.integer("PEXPIRETIME k") * 1_000_000 - arrival_ns(&mut client, "k");
    assert!((0..1_001_000).contains(&excess_ns), "{excess_ns} ns");
}

#[test]
fn effects_of_a_transaction_and_of_a_script_are_sent_and_share_one_limit() {
    let server = setup().start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    client.ok("MULTI");
    for _ in 0..3 {
        client.run(CALL);
    }
    let Value::Array(replies) = client.run("EXEC") else { panic!("no EXEC") };
    let limited = replies.iter().map(|reply| integers(reply).expect("a decision")[0]);
    assert_eq!(limited.collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(integers(&client.run_in_script(CALL)), Some([1, 2, 0, 30, 60]));
    let sent = stream.effects(&mut client);
    let sets = sent.iter().filter(|effect| effect[0] == b"SET").count();
    assert_eq!(sets, 2, "{sent:?}");
    assert!(sent.iter().all(|effect| !effect[0].starts_with(b"CL.")), "{sent:?}");
}

#[test]
fn replica_with_another_clock_holds_what_its_primary_decided() {
    let primary = setup().with_tcp().start();
    let replica = replica_with(&primary, setup());
    let (mut client, mut reader) = (primary.client(), replica.client());
    client.freeze(BASE_US);
    // The replica's clock is an hour ahead, where every state would have expired, then an hour
    // behind.
    for skew_us in [3_600_000_000, -3_600_000_000] {
        reader.freeze(BASE_US + skew_us);
        let mut random = Random::new(skew_us.unsigned_abs());
        for _ in 0..300 {
            client.advance_ms(random.below(2_000) as i64);
            let key = random.below(5);
            client.decide(&format!("CL.THROTTLE {key} 9 10 60 {}", random.below(4)));
        }
        wait_for_offset(&primary, &replica);
        assert_eq!(reader.contents(), client.contents());
        let refused = reader.error("CL.THROTTLE 1 9 10 60");
        assert!(refused.starts_with("READONLY"), "{refused}");
        assert_eq!(reader.info_number("rl", "rl_throttle_allowed"), 0, "it decides nothing");
    }
    // After its promotion the replica continues where the primary was.
    let held = client.decide("CL.THROTTLE 1 9 10 60 0");
    let now_us = client.integer("RL.DEBUG CLOCK FREEZE");
    reader.ok("REPLICAOF NO ONE");
    reader.freeze(now_us);
    assert_eq!(reader.decide("CL.THROTTLE 1 9 10 60 0"), held);
}

#[test]
fn file_replayed_later_repeats_no_decision() {
    // A clock set to September 2001 writes the file.
    const LONG_AGO_US: i64 = 1_000_000_000_000_000;
    let append_only = setup().line("appendonly yes").line("appendfsync always");
    let mut server = append_only.line("aof-use-rdb-preamble no").start();
    let mut client = server.client();
    client.freeze(LONG_AGO_US);
    for (at_s, expected) in [(0, [0, 2, 1, -1, 30]), (1, [0, 2, 0, -1, 59]), (2, [1, 2, 0, 28, 58])]
    {
        client.freeze(LONG_AGO_US + at_s * 1_000_000);
        assert_eq!(client.decide(CALL), expected);
    }
    let before = client.contents();
    for entry in fs::read_dir(server.file("appendonlydir")).expect("a directory") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("a file");
        let text = String::from_utf8_lossy(&bytes).to_uppercase();
        assert!(!text.contains("THROTTLE"), "the command itself is in the file: {text}");
    }
    // The real clock replays the file after a kill, many years later.
    for _ in 0..2 {
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.contents(), before);
        assert_eq!(client.info_number("rl", "rl_throttle_allowed"), 0);
        client.freeze(LONG_AGO_US + 3_000_000);
        assert_eq!(client.decide(CALL), [1, 2, 0, 27, 57]);
    }
    // The keys also load on a server without the command, and on one without the module.
    server.start_again_as(|setup| setup.line("rl.redis-cell no"));
    assert_eq!(server.client().contents(), before);
    server.start_again_as(|_| Server::setup().without_module().line("appendonly yes"));
    assert_eq!(server.client().contents(), before);
}

/// Configures a server that replicates calls of `CL.THROTTLE` unchanged, as redis-cell does. Here
/// the name is an alias of a command that takes any arguments.
fn passing_on() -> support::server::Setup {
    Server::setup().without_module().line("rename-command RPUSH CL.THROTTLE")
}

#[test]
fn replica_of_a_server_with_redis_cell_decides_the_calls_it_receives() {
    let primary = passing_on().with_tcp().start();
    let replica = replica_with(&primary, setup());
    replica.client().freeze(BASE_US);
    let mut client = primary.client();
    for _ in 0..3 {
        client.integer("CL.THROTTLE k 9 10 60");
    }
    // A call that is an error on the replica does not break the replication link.
    client.integer("CL.THROTTLE k 9 10 60 -1");
    client.integer("CL.THROTTLE other 9 10 60");
    wait_for_offset(&primary, &replica);
    let mut reader = replica.client();
    assert_eq!(arrival_ns(&mut reader, "k"), BASE_US * 1_000 + 18_000_000_000);
    assert_eq!(arrival_ns(&mut reader, "other"), BASE_US * 1_000 + 6_000_000_000);
    // The replica is promoted and continues to count.
    reader.ok("REPLICAOF NO ONE");
    assert_eq!(reader.decide("CL.THROTTLE k 9 10 60"), [0, 10, 6, -1, 24]);
    replica.assert_alive();
}

#[test]
fn file_written_by_redis_cell_loads_only_where_the_command_is_enabled() {
    let lines = |setup: support::server::Setup| {
        // With another policy, the server may still hold back its last writes when it is killed.
        setup.line("appendonly yes").line("appendfsync always").line("aof-use-rdb-preamble no")
    };
    let mut server = lines(passing_on()).start();
    let mut client = server.client();
    for quantity in [1, 2, 3, 9] {
        client.integer(&format!("CL.THROTTLE k 9 10 31000000 {quantity}"));
    }
    client.ok("SET last 1");
    server.start_again_as(|_| lines(setup()));
    let mut client = server.client();
    assert_eq!(client.bytes("GET last"), b"1");
    // Six of ten units are used: the call of quantity 9 was denied.
    assert_eq!(client.decide("CL.THROTTLE k 9 10 31000000 0")[..3], [0, 10, 4]);
    // The rewritten file holds states, so a server without the command can load it.
    client.run("BGREWRITEAOF");
    eventually("the file is rewritten", || {
        let state = client.info("persistence");
        let busy = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
        busy.iter().all(|field| state[*field] == "0").then_some(())
    });
    let before = client.contents();
    server.start_again_as(|_| lines(Server::setup()));
    assert_eq!(server.client().contents(), before);
}

#[test]
fn snapshot_restores_the_state() {
    let mut server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert_eq!(client.decide(CALL), [0, 2, 1, -1, 30]);
    client.ok("SAVE");
    let before = client.contents();
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    client.freeze(BASE_US);
    assert_eq!(client.decide(CALL), [0, 2, 0, -1, 60]);
}

#[test]
fn of_10_000_calls_of_cl_throttle_on_64_connections_exactly_1_000_are_allowed() {
    const CONNECTIONS: usize = 64;
    const CALLS: usize = 10_000;
    let server = setup().start();
    let start = Barrier::new(CONNECTIONS);
    // A limit of a thousand per year: less than one unit returns during the test.
    let call = "CL.THROTTLE k 999 1000 31536000";
    let replies: Vec<Reply> = thread::scope(|scope| {
        let callers = (0..CONNECTIONS).map(|number| {
            let (server, start) = (&server, &start);
            scope.spawn(move || {
                let mut client = server.client();
                let calls = CALLS / CONNECTIONS + usize::from(number < CALLS % CONNECTIONS);
                start.wait();
                (0..calls).map(|_| client.decide(call)).collect::<Vec<_>>()
            })
        });
        let callers = callers.collect::<Vec<_>>();
        callers.into_iter().flat_map(|caller| caller.join().expect("no caller fails")).collect()
    });
    let (denied, allowed): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply[0] == 1);
    let mut remaining = allowed.iter().map(|reply| reply[2]).collect::<Vec<_>>();
    remaining.sort_unstable();
    assert!(remaining.into_iter().eq(0..1_000), "each rest is seen once");
    assert_eq!(denied.len(), CALLS - 1_000);
    assert!(denied.iter().all(|reply| reply[2] == 0 && reply[3] > 0));
    server.assert_alive();
}

#[test]
fn key_takes_no_more_memory_than_one_written_by_set() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("SET plain 1800000002000000000abc PX 100000");
    let most = client.integer("MEMORY USAGE plain") + 16;
    for used in 0..10 {
        assert_eq!(client.decide("CL.THROTTLE plainer 9 10 60")[2], 9 - used);
        let bytes = client.integer("MEMORY USAGE plainer");
        assert!(bytes <= most + 8, "{bytes} bytes after call {used}, of {most}");
        assert_eq!(client.integer("STRLEN plainer"), 19);
    }
}
