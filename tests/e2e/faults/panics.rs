//! Panics inside the module, forced by `RL.DEBUG PANIC` in a build for tests: at every point of
//! every command, on every path through it, and during traffic. The caller gets an error, nothing
//! else is affected, and the server continues.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use redis::Value;

use support::played::words;
use support::settling::settle;
use support::{
    ALGORITHMS, BASE_US, Client, ReplicationStream, Server, eventually, integers, module,
    raw_error, text,
};

const PANICKED: &str = "ERR internal error: the call was stopped and the key left as it was, \
     see the server's log";

/// The points of a call. The last is only reached by a call that stores something.
const POINTS: [&str; 4] = ["parse", "decide", "reply", "store"];

/// Paths through the commands that have no algorithm as a parameter. Before a line runs, it panics
/// at the points that its mark names: `*` all, `-` all but `store`, `~` only `parse` and `reply`,
/// `!` only `parse`. A line without a mark only prepares. Arguments with spaces are quoted.
const PATHS: &[&[&str]] = &[
    // A quota: created, changed, denied, and repaired after the clock stepped back.
    &[
        "*RL.QUOTA k 5 month",
        "*RL.QUOTA k 5 month COST 4",
        "-RL.QUOTA k 5 month",
        "RL.DEBUG CLOCK ADVANCE -365d",
        "RL.DEBUG CLOCK ADVANCE -365d",
        "*RL.QUOTA k 5 month",
        "*RL.CHARGE k QUOTA 5 month",
        "*RL.REFUND k QUOTA 5 month",
    ],
    // Leases: taken, renewed, denied and released.
    &[
        "*RL.LEASE k a 2 60s",
        "*RL.LEASE k a 2 70s",
        "-RL.LEASE k b 1 60s",
        "-RL.PEEK k LEASE b 2 60s",
        "*RL.LEASE k b 2 60s",
        "*RL.RENEW k a 80s",
        "-RL.RENEW k c 70s",
        "*RL.RELEASE k a",
        "-RL.RELEASE k a",
        "*RL.ALL other \"FIXED 5 60\" k \"LEASE c 2 60s\"",
    ],
    // Reservations, alone, by a policy and as one of several rules.
    &[
        "*RL.RESERVE k a 1h FIXED 10 60 COST 4",
        "*RL.RESERVE k b 1h FIXED 10 60 COST 3",
        "*RL.COMMIT k b FIXED 10 60",
        "*RL.FIXED k 10 60",
        "*RL.CANCEL k a FIXED 10 60",
        "*RL.RESERVE q a 1h QUOTA 10 day COST 4",
        "*RL.COMMIT q a QUOTA 10 day",
        "RL.POLICY SET p FIXED 10 60",
        "*RL.ALL a \"RESERVE j 30s FIXED 10 60 COST 2\" b \"RESERVE j 30s USE p COST 2\" \
         c \"GCRA 9 1 60\"",
        "*RL.RESERVE b k 30s USE p",
        "-RL.PEEK b RESERVE k 30s USE p",
        "*RL.COMMIT b k USE p",
        "*RL.CANCEL b j USE p",
    ],
    // The commands of redis-cell and Redis: created, changed, denied, status, impossible.
    &[
        "*CL.THROTTLE k 1 2 60",
        "*CL.THROTTLE k 1 2 60",
        "-CL.THROTTLE k 1 2 60",
        "-CL.THROTTLE k 1 2 60 0",
        "-CL.THROTTLE k 1 2 60 3",
        "!CL.THROTTLE k wrong wrong wrong",
        "*GCRA other 1 2 60",
        "*GCRA other 1 2 60",
        "-GCRA other 1 2 60",
    ],
    // A ban, over nothing and over each kind of state.
    &["*RL.BLOCK k 2h", "*RL.BLOCK k 1h"],
    &["RL.GCRA k 5 5 1h", "*RL.BLOCK k 2h"],
    &["RL.LEASE k a 5 1h", "*RL.BLOCK k 2h"],
    // Calls that a ban denies, that store it re-based, and that follow its end.
    &[
        "RL.BLOCK k 1h",
        "-RL.GCRA k 5 5 1h",
        "-RL.LEASE k a 5 1h",
        "-RL.CHARGE k GCRA 5 5 1h",
        "-CL.THROTTLE k 1 2 60",
        "-RL.RENEW k a 1h",
        "-RL.RELEASE k a",
        "RL.DEBUG CLOCK ADVANCE -1h",
        "*RL.GCRA k 5 5 1h",
        "RL.DEBUG CLOCK ADVANCE -1h",
        "*RL.LEASE k a 5 1h",
        "RL.DEBUG CLOCK ADVANCE -1h",
        "*CL.THROTTLE k 1 2 60",
        "RL.DEBUG CLOCK ADVANCE 2h",
        "*RL.LEASE k a 5 1h",
    ],
    // Commands for operators, and calls that are themselves invalid.
    &[
        "RL.GCRA k 5 5 1h",
        "~RL.INSPECT k",
        "!RL.INSPECT missing",
        "~RL.METRICS",
        "~RL.POLICY STATS",
        "~RL.POLICY RESETSTAT",
        "~RL.TOP",
        "~RL.TOP RESET",
        "!RL.DEBUG CLOCK ADVANCE 1h",
        "!RL.GCRA k wrong wrong wrong",
        "!RL.PEEK k WRONG 1 1",
    ],
];

/// Returns the paths of each algorithm, of each mode of a policy, and of several rules.
fn paths() -> Vec<Vec<String>> {
    let of_algorithm = |algorithm: &support::Algorithm| {
        let (call, peek) = (algorithm.call("k", 2, "1h"), algorithm.peek("k", 2, "1h"));
        let settled = |command| format!("*{}", settle(command, *algorithm, "other", 9, 1));
        vec![
            format!("*{call}"),
            format!("-{peek}"),
            format!("*{call}"),
            format!("-{call}"),
            format!("-{call} COST 0"),
            format!("-{call} COST 3"),
            // A call that repairs the state after the clock has stepped back by a year.
            "RL.DEBUG CLOCK ADVANCE -365d".to_owned(),
            format!("*{call}"),
            settled("RL.CHARGE"),
            settled("RL.REFUND"),
        ]
    };
    let rules = ["GCRA 5 5 1h", "SLIDINGLOG 5 1h", "BACKOFF 2 1 2 3"];
    let modes = ["", "SHADOW", "ENFORCE 0", "OFF", "BLOCK"];
    let of_mode = |(mode, rule): (&str, &str)| {
        // A policy that is off or blocked stores nothing, and one that is blocked denies the call.
        let stores = if matches!(mode, "OFF" | "BLOCK") { '-' } else { '*' };
        let allows = if mode == "BLOCK" { '-' } else { '*' };
        vec![
            format!("RL.POLICY SET p {mode} {rule}"),
            format!("{stores}RL.USE k p"),
            "-RL.PEEK k USE p".to_owned(),
            format!("{stores}RL.CHARGE k USE p"),
            format!("{stores}RL.REFUND k USE p"),
            "*RL.USE other none DEFAULT FIXED 9 1h".to_owned(),
            format!("{allows}RL.ALL k \"USE p\" another \"FIXED 9 1h\""),
        ]
    };
    let rows = ALGORITHMS.iter().map(|algorithm| {
        format!(" {} \"{} {}\"", algorithm.name, algorithm.name, algorithm.arguments(9, "1h"))
    });
    let several = format!("*RL.ALL{}", rows.collect::<String>());
    let by_mode = modes.iter().flat_map(|mode| rules.map(|rule| of_mode((mode, rule))));
    let fixed = PATHS.iter().map(|path| path.iter().map(|line| (*line).to_owned()).collect());
    let of_algorithms = ALGORITHMS.iter().map(of_algorithm);
    of_algorithms.chain(by_mode).chain([vec![several.clone(), several]]).chain(fixed).collect()
}

fn start() -> Server {
    let setup = Server::setup().line("rl.redis-cell yes").line("rl.gcra yes");
    setup.module(module::path_with_faults()).start()
}

/// Makes the next command that reaches this point panic, once.
fn plant(client: &mut Client, point: &str) {
    client.ok(&format!("RL.DEBUG PANIC {point}"));
}

/// Plants a panic, makes a call that reaches that point, and asserts that only this call fails: no
/// key, replica or watching client sees it.
fn assert_stopped(
    [client, watcher]: [&mut Client; 2],
    stream: &mut ReplicationStream,
    point: &str,
    call: &[String],
) {
    let (before, changes) = (client.contents(), client.changes());
    let panics = client.info_number("rl", "rl_panics");
    watcher.ok("WATCH k other");
    plant(client, point);
    assert_eq!(raw_error(&client.call(call)).as_deref(), Some(PANICKED), "{call:?} at {point}");
    assert_eq!(client.contents(), before, "{call:?} at {point}: a key has changed");
    assert_eq!(client.changes(), changes, "{call:?} at {point}: something was written");
    assert_eq!(client.info_number("rl", "rl_panics"), panics + 1, "{call:?} at {point}");
    assert!(stream.effects(client).is_empty(), "{call:?} at {point}");
    watcher.ok("MULTI");
    watcher.run("PING");
    assert_ne!(watcher.run("EXEC"), Value::Nil, "{call:?} at {point}");
    // The policy table can still be read and written, so no lock is still held.
    client.ok("RL.POLICY SET lock FIXED 1 1");
    assert_eq!(client.integer("RL.POLICY DEL lock"), 1);
}

#[test]
fn panic_at_any_point_of_any_path_through_a_command_stops_that_call_alone() {
    let server = start();
    let [mut client, mut watcher] = [(); 2].map(|()| server.client());
    let mut stream = server.replication_stream();
    let mut panics = 0;
    for path in paths() {
        client.run("FLUSHALL");
        client.freeze(BASE_US);
        for line in path {
            let points = match line.chars().next() {
                Some('*') => &POINTS[..],
                Some('-') => &POINTS[..3],
                Some('~') => &["parse", "reply"],
                Some('!') => &POINTS[..1],
                _ => &[],
            };
            let call = words(line.trim_start_matches(['*', '-', '~', '!']));
            stream.effects(&mut client);
            for point in points {
                assert_stopped([&mut client, &mut watcher], &mut stream, point, &call);
                panics += 1;
            }
            let changes = client.changes();
            client.call(&call);
            if !points.is_empty() {
                // The mark is right, and a panic did not only put a change off.
                assert_eq!(client.changes() > changes, line.starts_with('*'), "{line}");
            }
        }
    }
    server.assert_alive();
    let log = server.log();
    let logged = log.lines().filter(|line| line.contains("panicked")).count();
    assert_eq!(logged, panics, "one line each:\n{log}");
}

#[test]
fn panic_in_a_transaction_or_a_script_stops_one_call() {
    let server = start();
    let mut client = server.client();
    client.freeze(BASE_US);
    plant(&mut client, "store");
    client.ok("MULTI");
    for _ in 0..3 {
        client.run("RL.GCRA k 5 5 1h");
    }
    let Value::Array(replies) = client.run("EXEC") else { panic!("no EXEC") };
    assert_eq!(raw_error(&replies[0]).as_deref(), Some(PANICKED));
    assert_eq!(integers(&replies[1]).expect("a decision")[..3], [1, 5, 4]);
    assert_eq!(integers(&replies[2]).expect("a decision")[..3], [1, 5, 3]);

    plant(&mut client, "decide");
    let script = "local failed = redis.pcall('RL.GCRA', KEYS[1], 5, 5, '1h') \
                  local passed = redis.call('RL.GCRA', KEYS[1], 5, 5, '1h') \
                  return {failed['err'], passed[3]}";
    let Value::Array(replies) = client.call(&["EVAL", script, "1", "k"]) else {
        panic!("no array")
    };
    assert_eq!(support::text(&replies[0]), PANICKED);
    assert_eq!(replies[1], Value::Int(2));
    server.assert_alive();
}

#[test]
fn panic_in_info_omits_only_the_modules_section() {
    let server = start();
    let mut client = server.client();
    for (done, section) in ["rl", "everything", "modules", "rl_stats"].into_iter().enumerate() {
        plant(&mut client, "info");
        let info = text(&client.run(&format!("INFO {section}")));
        assert!(!info.contains("rl_panics:"), "{section}: {info}");
        assert_eq!(info.contains("redis_version:"), section == "everything", "{info}");
        assert_eq!(client.info_number("rl", "rl_panics"), done as i64 + 1, "{section}");
    }
    plant(&mut client, "info");
    client.ok("MULTI");
    client.run("INFO everything");
    client.run("RL.GCRA k 5 5 1h");
    let Value::Array(replies) = client.run("EXEC") else { panic!("no EXEC") };
    assert!(text(&replies[0]).contains("redis_version:"));
    assert_eq!(integers(&replies[1]).expect("a decision")[..3], [1, 5, 4]);
    server.assert_alive();
}

#[test]
fn each_panic_under_load_stops_one_call_which_takes_no_unit() {
    const LIMIT: u64 = 5_000;
    const PANICS: i64 = 200;
    let server = start();
    let stop = AtomicBool::new(false);
    // Two clients make calls until the limits are used up, while a third client plants panics.
    let caller = || {
        let mut client = server.client();
        let (mut allowed, mut stopped) = (0, 0);
        loop {
            let mut denied = 0;
            for algorithm in ALGORITHMS {
                let reply = client.run(&algorithm.call(algorithm.name, LIMIT, "366d"));
                match integers(&reply) {
                    Some(reply) if reply[0] == 1 => allowed += 1,
                    Some(_) => denied += 1,
                    None => {
                        assert_eq!(raw_error(&reply).as_deref(), Some(PANICKED));
                        stopped += 1;
                    }
                }
            }
            if denied == ALGORITHMS.len() && stop.load(Relaxed) {
                return (allowed, stopped);
            }
        }
    };
    let (allowed, stopped) = thread::scope(|scope| {
        let callers = [(); 2].map(|()| scope.spawn(caller));
        let mut client = server.client();
        for round in 1..=PANICS {
            // The point `store` comes first, because no call stores anything once the limits are
            // used up.
            plant(&mut client, if round <= 10 { "store" } else { POINTS[round as usize % 3] });
            eventually("the next call panics", || {
                (client.info_number("rl", "rl_panics") == round).then_some(())
            });
        }
        stop.store(true, Relaxed);
        let counts = callers.map(|caller| caller.join().expect("no caller fails"));
        (counts[0].0 + counts[1].0, counts[0].1 + counts[1].1)
    });
    assert_eq!(allowed, LIMIT * ALGORITHMS.len() as u64, "{stopped} were stopped");
    assert_eq!(stopped, PANICS);
    server.assert_alive();
}

#[test]
fn panic_in_the_callback_of_a_setting_fails_only_that_command() {
    let server = start();
    let mut client = server.client();
    let slots = |client: &mut Client| {
        let pair = client.run("CONFIG GET rl.sliding-log-slots");
        format!("{pair:?}")
    };
    client.ok("CONFIG SET rl.sliding-log-slots 64");
    let before = slots(&mut client);

    plant(&mut client, "config_set");
    client.error("CONFIG SET rl.sliding-log-slots 128");
    assert_eq!(client.info_number("rl", "rl_panics"), 1);
    assert_eq!(slots(&mut client), before, "the setting is as it was");

    plant(&mut client, "config_get");
    assert_ne!(slots(&mut client), before, "a getter has no error: it shows the default");
    assert_eq!(client.info_number("rl", "rl_panics"), 2);
    assert_eq!(slots(&mut client), before, "and what was set once it works again");
    client.ok("CONFIG SET rl.sliding-log-slots 128");

    plant(&mut client, "config_get");
    client.run("CONFIG GET rl.debug-commands");
    assert_eq!(client.info_number("rl", "rl_panics"), 3);
    server.assert_alive();
}

#[test]
fn panic_while_loading_refuses_the_load_and_the_server_continues() {
    let server = Server::setup().without_module().environment("RL_PANIC", "load").start();
    let mut client = server.client();
    let load = format!("MODULE LOAD {}", module::path_with_faults().display());
    client.error(&load);
    assert!(server.log().contains("panicked at"), "{}", server.log());
    client.error("RL.GCRA k 1 1 1");
    client.wait_for_cron();
    // The build without fault injection ignores this variable.
    client.ok(&format!("MODULE LOAD {}", module::path().display()));
    assert!(client.allows("RL.GCRA k 1 1 1"));
    server.assert_alive();
}
